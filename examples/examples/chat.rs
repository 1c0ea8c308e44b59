//! A chat for everybody who opens its page:
//! `cargo run -p weftwork-examples --example chat`, then <http://127.0.0.1:8080>, twice.

use weftwork::prelude::*;
use weftwork::{Message, SocketEvent, WebSocketHub, WebSockets};

/// The function is called by the event loops: no socket has a thread, and what is said is made once for all.
fn site() -> impl Handler {
    let chat = WebSocketHub::new(WebSockets::new().message_bytes_max(1000), |chat, from, event| {
        let said = match event {
            SocketEvent::Joined => format!("{from} has come"),
            SocketEvent::Message(Message::Text(text)) => format!("{from}: {text}"),
            SocketEvent::Message(Message::Binary(_)) => return,
            SocketEvent::Left => format!("{from} has gone"),
        };
        chat.send(&said.into());
    });
    move |req: &mut Request| match req.path() {
        "/" => html(include_str!("chat.html")),
        "/chat" => chat.accept(req),
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
        let url = format!("ws://{}/chat", running.local_addr().unwrap());
        let (mut one, _) = tungstenite::connect(&url).unwrap();
        assert_eq!(one.read().unwrap().into_text().unwrap(), "1 has come");
        let (mut two, _) = tungstenite::connect(&url).unwrap();
        for socket in [&mut one, &mut two] {
            assert_eq!(socket.read().unwrap().into_text().unwrap(), "2 has come");
        }
        two.send("hello".into()).unwrap();
        for socket in [&mut one, &mut two] {
            assert_eq!(socket.read().unwrap().into_text().unwrap(), "2: hello");
        }
        drop(two);
        assert_eq!(one.read().unwrap().into_text().unwrap(), "2 has gone");
    }
}
