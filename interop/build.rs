//! Makes the gRPC service of the tests, and its client, without `protoc`.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let codec = "tonic_prost::ProstCodec";
    let method = |name: &str, route: &str| {
        Method::builder()
            .name(name)
            .route_name(route)
            .input_type("crate::grpc::Text")
            .output_type("crate::grpc::Text")
            .codec_path(codec)
    };
    let service = Service::builder()
        .name("Echo")
        .package("weftwork.interop")
        .method(method("unary", "Unary").build())
        .method(method("server_stream", "ServerStream").server_streaming().build())
        .method(method("client_stream", "ClientStream").client_streaming().build())
        .method(method("both_stream", "BothStream").client_streaming().server_streaming().build())
        .build();
    Builder::new().compile(&[service]);
}
