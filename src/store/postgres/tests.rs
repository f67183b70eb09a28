use super::*;

#[tokio::test]
async fn server_without_tls_is_said_with_advice() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://ic@{}/jobs?sslmode=require", listener.local_addr().unwrap());
    let server = open(&url).unwrap();
    let refusing = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        // A request for TLS is eight bytes; "N" refuses it.
        stream.read_exact(&mut [0; 8]).await.unwrap();
        stream.write_all(b"N").await.unwrap();
    };
    let (connected, ()) = tokio::join!(server.connect(), refusing);
    let Err(failed) = connected else { panic!("a connection without TLS") };
    assert!(failed.to_string().contains("set sslmode=disable"), "{failed}");
}
