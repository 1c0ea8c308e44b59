//! A chat for all visitors of a page: `cargo run -p weftwork-examples --example chat`, then open
//! <http://127.0.0.1:8080> twice.

use weftwork::prelude::*;
use weftwork::{Message, SocketEvent, WebSocketHub, WebSockets};

/// The event loops call the function, so no socket has a thread, and a message is encoded once for all. The
/// value of a socket is the name that it was accepted with.
fn site() -> impl Handler {
    let chat = WebSocketHub::<String>::new(WebSockets::new().message_bytes_max(1000), |chat, from, event| {
        let name = &from.value;
        let line = match event {
            SocketEvent::Joined => format!("{name} has come"),
            SocketEvent::Message(Message::Text(text)) => format!("{name}: {text}"),
            SocketEvent::Message(Message::Binary(_)) => return,
            SocketEvent::Left => format!("{name} has gone"),
        };
        chat.send(&line.into());
    });
    move |req: &mut Request| match req.path() {
        "/" => html(include_str!("chat.html")),
        "/chat" => {
            let name = req.query_value("name").filter(|name| !name.is_empty());
            chat.join_as(req, name.unwrap_or("somebody".into()).into_owned())
        }
        _ => Response::new(StatusCode::NOT_FOUND),
    }
}

fn main() -> weftwork::Result<()> {
    Server::bind("127.0.0.1:8080")?.run(site())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_talk() {
        let running = Server::bind("127.0.0.1:0").unwrap().start(site()).unwrap();
        let url = format!("ws://{}/chat?name=", running.local_addr().unwrap());
        let (mut ada, _) = tungstenite::connect(format!("{url}Ada")).unwrap();
        assert_eq!(ada.read().unwrap().into_text().unwrap(), "Ada has come");
        let (mut bob, _) = tungstenite::connect(format!("{url}Bob")).unwrap();
        for socket in [&mut ada, &mut bob] {
            assert_eq!(socket.read().unwrap().into_text().unwrap(), "Bob has come");
        }
        bob.send("hello".into()).unwrap();
        for socket in [&mut ada, &mut bob] {
            assert_eq!(socket.read().unwrap().into_text().unwrap(), "Bob: hello");
        }
        drop(bob);
        assert_eq!(ada.read().unwrap().into_text().unwrap(), "Bob has gone");
    }
}
