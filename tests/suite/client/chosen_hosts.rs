//! Whose word counts for others: a host that a tenant's variables choose speaks for that tenant alone.

use super::*;

/// Tenants `a` and `b` of a vendor with this base URL, whose variable `host` each fills in differently. They share the
/// vendor's only limit. Requests of `a` are refused, or get a report that nothing is left.
async fn tenants_at(base_url: &str, refusal: bool) -> IntegrationClient {
    let transport = FakeTransport::new(move |call| match (call.url.contains("//a."), refusal) {
        (true, true) => FakeAnswer::status(429).header("retry-after", "600"),
        (true, false) => FakeAnswer::status(200)
            .header("x-ratelimit-limit", "100")
            .header("x-ratelimit-remaining", "0")
            .header("x-ratelimit-reset", "600"),
        (false, _) => FakeAnswer::status(200),
    });
    let text = format!(
        "[vendors.v]\nbase_url = \"{base_url}\"\nauth = {{ scheme = \"none\" }}\nretry = {{ max_retries = 0 }}\n\
         [[vendors.v.limits]]\nname = \"l\"\nlimit = 100\nwindow = \"1h\"\nscope = \"vendor\"\nalgorithm = \"fixed_window\"\n"
    );
    let builder = IntegrationClient::builder().without_catalogue().vendors_toml(text).transport(transport);
    let tenant = |id: &str, host: &str| TenantEntry::new(id, "v").variable("host", host);
    let full = base_url.contains("//{host}/");
    let [a, b] = if full { ["a.example.com", "b.example.com"] } else { ["a", "b"] };
    builder.tenant(tenant("a", a)).tenant(tenant("b", b)).build().await.unwrap()
}

/// Whether a request of `b` goes at once after the response to `a`. Both have sent before, so that the client knows the
/// hosts of both.
async fn other_tenant_goes_on(client: &IntegrationClient) -> bool {
    let send = |tenant: &'static str| client.send(tenant, Priority::High, get("/").deadline(ms(1_000)));
    send("b").await.unwrap();
    send("a").await.map(drop).unwrap_or_default();
    send("b").await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn chosen_host_speaks_for_its_tenant_alone() {
    for refusal in [true, false] {
        // The tenant chooses the whole host, so it may be anybody's.
        let chosen = tenants_at("https://{host}/api", refusal).await;
        assert!(other_tenant_goes_on(&chosen).await, "refusal: {refusal}");
        // The tenant itself waits as it was told.
        assert!(chosen.send("a", Priority::High, get("/").deadline(ms(1_000))).await.is_err(), "refusal: {refusal}");
        // The tenant chooses a label in the vendor's own domain.
        let vendors = tenants_at("https://{host}.v.example/api", refusal).await;
        assert!(!other_tenant_goes_on(&vendors).await, "refusal: {refusal}");
    }
}
