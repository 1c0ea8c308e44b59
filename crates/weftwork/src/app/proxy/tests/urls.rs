//! Tests which URLs are servers, and which settings of TLS are refused.

use crate::Proxy;

#[test]
fn a_url_is_checked_when_it_is_given() {
    for url in [
        "http://127.0.0.1:1",
        "http://127.0.0.1",
        "http://[::1]:1/base/",
        "http://localhost/a",
        "h2c://127.0.0.1:1/a",
    ] {
        assert!(Proxy::to(url).is_ok(), "{url}");
    }
    for url in [
        "",
        "127.0.0.1:1",
        #[cfg(not(feature = "_tls"))]
        "https://127.0.0.1",
        #[cfg(feature = "_tls")]
        "https://a_/b@c",
        "h2://127.0.0.1:1",
        "http://",
        "http:///a",
        "http://u@127.0.0.1",
        "http://127.0.0.1:x",
        "http://127.0.0.1/a?b",
        "http://127.0.0.1/a#b",
        "http://127.0.0.1/a b",
        "http://a\r\nb",
        "http://no-such-host.invalid",
    ] {
        let error = Proxy::to(url).unwrap_err().to_string();
        assert!(
            error.contains("http://host:port") || error.contains("cannot look up") || error.contains("TLS"),
            "{error}"
        );
        let lacks_feature = cfg!(not(feature = "_tls")) && url.starts_with("https:");
        assert_eq!(error.contains("feature `tls`"), lacks_feature, "{error}");
    }
}

#[cfg(feature = "_tls")]
#[test]
fn settings_of_tls_are_checked_when_they_are_given() {
    for url in ["https://127.0.0.1", "https://[::1]:1/base/", "https://localhost:1"] {
        let proxy = Proxy::to(url).unwrap().server_name("a.example").unwrap();
        assert!(format!("{proxy:?}").contains("a.example"), "{proxy:?}");
    }
    let secure = || Proxy::to("https://127.0.0.1:1").unwrap();
    let plain = || Proxy::to("http://127.0.0.1:1").unwrap();
    for (refused, why) in [
        (secure().server_name("a b"), "DNS name"),
        (secure().ca_file("/no/such/ca.pem"), "/no/such/ca.pem"),
        (secure().ca_file("Cargo.toml"), "PEM"),
        (secure().client_certificate_files("Cargo.toml", "Cargo.toml"), "PEM"),
        (plain().server_name("a.example"), "https://"),
        (plain().ca_file("ca.pem"), "https://"),
        (plain().client_certificate_files("a.pem", "a.key"), "https://"),
    ] {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
