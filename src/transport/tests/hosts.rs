//! Tests that a host chosen by a tenant's variables leads only to public addresses, unless the vendor's entry allows
//! others.

use super::server::{FaultServer, Step};
use super::*;

/// One exchange with `localhost`, for a vendor whose entry says `template` and `connection`.
async fn exchange_with_localhost(
    template: &str,
    connection: Connection,
) -> (Result<StatusCode, TransportError>, FaultServer) {
    exchange_by(template, connection, Connections::default()).await
}

async fn exchange_by(
    template: &str,
    connection: Connection,
    connections: Connections,
) -> (Result<StatusCode, TransportError>, FaultServer) {
    let server =
        FaultServer::answering(vec![Step::Write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec())]).await;
    let base = format!("http://localhost:{}", server.address.port());
    let mut vendor = vendor(AuthScheme::None);
    vendor.base_url = template.to_owned();
    vendor.connection = connection;
    let tenant = tenant(vendor);
    let base = target::base(&base, false).unwrap();
    let prepared = Prepared::new(Request::get("acme-api", "/"), &tenant, &base).unwrap();
    let mut ready = PreparedRequest { prepared, tenant };
    let exchange = ready.exchange(attempt(None, Duration::from_secs(20))).unwrap();
    let exchange = Exchange { connections: Arc::new(connections), ..exchange };
    let answer = ReqwestTransport::new().execute(exchange).await;
    (answer.map(|answer| answer.status), server)
}

#[tokio::test]
async fn tenant_host_at_private_address_is_refused() {
    for template in ["https://{host}", "https://{shop}.example", "https://{shop}.example:8443/api/{version}"] {
        let (answer, server) = exchange_with_localhost(template, Connection::default()).await;
        let error = answer.unwrap_err();
        assert_eq!((error.sent(), error.kind()), (Sent::NotSent, ErrorKind::Config), "{error}");
        assert!(error.to_string().contains("connection.allow_private"), "{error}");
        assert_eq!(server.connections(), 0);
    }
}

#[tokio::test]
async fn private_addresses_need_permission_or_literal_host() {
    let allowed = Connection { allow_private: true, ..Connection::default() };
    for (template, connection) in [
        ("https://{host}", allowed),
        ("http://localhost", Connection::default()),
        ("http://localhost/{account}", Connection::default()),
    ] {
        let (answer, server) = exchange_with_localhost(template, connection).await;
        assert_eq!((answer.unwrap(), server.connections()), (StatusCode::OK, 1), "{template}");
    }
}

/// A token URL may have a host that tenants choose, although the base URL is spelled out.
#[tokio::test]
async fn chosen_token_host_at_private_address_is_refused() {
    let base = "http://localhost";
    let (answer, server) = exchange_by(base, Connection::default(), Connections::of_host(true)).await;
    let error = answer.unwrap_err();
    assert_eq!((error.sent(), error.kind()), (Sent::NotSent, ErrorKind::Config), "{error}");
    assert_eq!(server.connections(), 0);
    let allowed = Connection { allow_private: true, ..Connection::default() };
    for (connection, connections) in
        [(allowed, Connections::of_host(true)), (Connection::default(), Connections::of_host(false))]
    {
        let (answer, server) = exchange_by(base, connection, connections).await;
        assert_eq!((answer.unwrap(), server.connections()), (StatusCode::OK, 1));
    }
}
