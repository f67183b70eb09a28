//! For what an access token may be used: one grant, and one host.

use integration_client::OnRemove;
use integration_client::config::{Config, Sources};

use super::*;

/// The refresh token of each token request.
fn used(vendor: &TokenVendor) -> Vec<String> {
    let token = |form: &str| form.split('&').find_map(|pair| pair.strip_prefix("refresh_token=")).map(str::to_owned);
    vendor.asked().iter().filter_map(|asked| token(&asked.form)).collect()
}

/// Two tenants of one account share one grant, also if one entry states what the vendor's states already.
#[tokio::test]
async fn tenants_of_an_account_share_the_token() {
    let vendor = TokenVendor::start(rules()).await.unwrap();
    let client = builder_with_refresh(&vendor, &Secrets::new()).token_keeper(MemoryKeeper::default());
    let b = TenantEntry::new("b", "v").account("a").oauth(oauth().client_id("test:client"));
    let client = client.tenant(b).build().await.unwrap();
    assert_eq!(send(&client).await.unwrap(), 200);
    client.send("b", Priority::Normal, Request::get("v", "/x")).await.unwrap();
    assert_eq!((vendor.asked().len(), vendor.served()), (1, vec![200, 200]));
}

/// The user connects again, and the entry refers to the new grant. Neither the access token nor the kept refresh token
/// of the old one is used any more.
#[tokio::test]
async fn token_belongs_to_its_grant() {
    let vendor = TokenVendor::start(rules()).await.unwrap();
    let (secrets, kept) = (Secrets::new(), MemoryKeeper::default());
    let client = builder_with_refresh(&vendor, &secrets).token_keeper(kept.clone()).build().await.unwrap();
    assert_eq!(send(&client).await.unwrap(), 200);
    secrets.set(&format!("refresh-{}", vendor.revoke_all()));
    let again = OAuthEntry::default().refresh_token("test:again");
    client.tenants().set(TenantEntry::new("a", "v").oauth(again)).unwrap();
    assert_eq!(token(&client).state, TokenState::None);
    assert_eq!(send(&client).await.unwrap(), 200);
    assert_eq!(used(&vendor), ["refresh-0", "refresh-3"]);
    assert_eq!(kept.newest().as_deref(), Some("refresh-4"));
    assert_eq!(vendor.served(), [200, 200], "nothing was sent with the old access token");
}

/// A token goes to the host of the base URL for which it was issued, and to no other.
#[tokio::test(start_paused = true)]
async fn token_belongs_to_its_base_url() {
    let asked = Arc::new(AtomicU32::new(0));
    let tokens = asked.clone();
    let transport = FakeTransport::new(move |call| match call.path() {
        "/token" => {
            let number = tokens.fetch_add(1, Ordering::SeqCst);
            FakeAnswer::status(200).body(format!("{{\"access_token\":\"access-{number}\",\"expires_in\":3600}}"))
        }
        _ => FakeAnswer::status(200),
    });
    let entry = "[vendors.v]\nbase_url = \"https://{host}.v.example/{part}\"\nauth = { scheme = \"bearer\" }\n\
                 unpublished = true\n[vendors.v.oauth]\ngrant = \"client_credentials\"\n\
                 token_url = \"https://login.example/token\"\nclient_id = \"test:client\"\n\
                 client_secret = \"test:secret\"\n";
    let tenant = |host: &str, part: &str| {
        TenantEntry::new("a", "v").variable("host", host).variable("part", part).oauth(OAuthEntry::default())
    };
    let client = builder(entry.to_owned(), &Secrets::new()).transport(transport.clone());
    let client = client.tenant(tenant("one", "p")).build().await.unwrap();
    for (host, part, tokens) in [("one", "p", 1), ("one", "q", 1), ("two", "p", 2), ("two", "q", 2)] {
        client.tenants().set(tenant(host, part)).unwrap();
        assert_eq!(send(&client).await.unwrap(), 200);
        assert_eq!(asked.load(Ordering::SeqCst), tokens, "{host}/{part}");
    }
    let sent: Vec<(String, String)> = transport
        .calls()
        .iter()
        .filter(|call| call.path() != "/token")
        .map(|call| (call.url.clone(), call.header("authorization").unwrap_or_default().to_owned()))
        .collect();
    let call = |host: &str, part: &str, token: &str| {
        (format!("https://{host}.v.example/{part}/x"), format!("Bearer access-{token}"))
    };
    assert_eq!(sent, [call("one", "p", "0"), call("one", "q", "0"), call("two", "p", "1"), call("two", "q", "1")]);
}

/// Exact Online has a path for each division of what one user has granted, and replaces refresh tokens: the divisions
/// have one account.
#[tokio::test]
async fn paths_of_one_host_share_the_token() {
    let vendor = TokenVendor::start(rules()).await.unwrap();
    let base = format!("base_url = \"http://{}", vendor.address);
    let entry = vendor.entry("v", REFRESH).replace(&format!("{base}\""), &format!("{base}/api/v1/{{division}}\""));
    let tenant = |id: &str, division: &str| {
        TenantEntry::new(id, "v").account("one").variable("division", division).oauth(oauth())
    };
    let client = builder(entry, &Secrets::new()).token_keeper(MemoryKeeper::default());
    let client = client.tenant(tenant("a", "101")).tenant(tenant("b", "102")).build().await.unwrap();
    client.tenants().set(tenant("c", "103")).unwrap();
    client.tenants().set(tenant("b", "104")).unwrap();
    for id in ["a", "b", "c"] {
        client.send(id, Priority::Normal, Request::get("v", "/x")).await.unwrap();
    }
    assert_eq!((vendor.asked().len(), vendor.served()), (1, vec![200; 3]));
}

/// The settings change during a refresh. Its token is not handed to requests with the new ones.
#[tokio::test]
async fn refresh_under_way_serves_its_own_grant() {
    let vendor = TokenVendor::start(Rules { takes: Duration::from_millis(300), ..rules() }).await.unwrap();
    let tenant = |oauth: OAuthEntry| TenantEntry::new("a", "v").oauth(oauth);
    let client = builder(vendor.entry("v", CLIENT), &Secrets::new());
    let client = client.tenant(tenant(OAuthEntry::default())).build().await.unwrap();
    let mut sends = tokio::task::JoinSet::new();
    let sender = client.clone();
    sends.spawn(async move { send(&sender).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    client.tenants().set(tenant(OAuthEntry::default().client_id("test:other"))).unwrap();
    assert_eq!(send(&client).await.unwrap(), 200);
    assert_eq!(sends.join_next().await.unwrap().unwrap().unwrap(), 200);
    let asked = vendor.asked();
    assert_eq!(asked.len(), 2);
    let client_of = |asked: &token_vendor::Asked| {
        asked.head.lines().find(|line| line.starts_with("authorization: Basic ")).unwrap().to_owned()
    };
    assert_ne!(client_of(&asked[0]), client_of(&asked[1]), "each refresh is for one client id");
    assert_eq!(vendor.served(), [200, 200], "both requests have the new token");
}

#[test]
fn configured_tenants_of_an_account_have_one_grant() {
    let vendor = "[vendors.v]\nbase_url = \"https://{part}.v.example\"\nauth = { scheme = \"bearer\" }\n\
                  unpublished = true\n[vendors.v.oauth]\ngrant = \"refresh_token\"\n\
                  token_url = \"https://v.example/token\"\nclient_id = \"env:ID\"\n";
    let tenant = |id: &str, account: &str, part: &str, grant: &str| {
        format!(
            "[[tenants]]\nid = \"{id}\"\nvendor = \"v\"\n{account}vars = {{ part = \"{part}\" }}\n\
             oauth = {{ refresh_token = \"env:{grant}\" }}\n"
        )
    };
    let load = |tenants: [String; 2]| {
        let text = vendor.to_owned() + &tenants.concat();
        Config::load(&Sources::new().without_catalogue().file("f.toml", text), 1).map(drop)
    };
    let one = "account = \"one\"\n";
    for (tenants, what) in [
        ([tenant("a", one, "p", "A"), tenant("b", one, "p", "B")], "different `oauth`"),
        ([tenant("a", one, "p", "A"), tenant("b", one, "q", "A")], "different hosts"),
        // Without an account of its own a tenant has one of its own name.
        ([tenant("a", "", "p", "A"), tenant("b", "account = \"a\"\n", "p", "B")], "different `oauth`"),
    ] {
        let error = load(tenants).unwrap_err().to_string();
        assert!(error.starts_with("f.toml:1") && error.contains("tenants[1].account: "), "{error}");
        assert!(error.contains("tenants `a` and `b` have one account at vendor `v`"), "{error}");
        assert!(error.contains(what) && error.contains("`account` of its own"), "{error}");
    }
    for tenants in [
        [tenant("a", "", "p", "A"), tenant("b", "", "q", "B")],
        [tenant("a", one, "p", "A"), tenant("b", "", "q", "B")],
        [tenant("a", one, "p", "A"), tenant("b", one, "p", "A")],
    ] {
        load(tenants).unwrap();
    }
}

#[tokio::test]
async fn tenants_of_an_account_have_one_grant() {
    let vendor = TokenVendor::start(rules()).await.unwrap();
    let tenant = |id: &str, reference: &str| {
        TenantEntry::new(id, "v").account("one").oauth(OAuthEntry::default().refresh_token(reference))
    };
    let start = || builder(vendor.entry("v", REFRESH), &Secrets::new()).token_keeper(MemoryKeeper::default());
    let mixed = start().tenant(tenant("a", "test:refresh")).tenant(tenant("b", "test:again"));
    let error = mixed.build().await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("tenants `a` and `b` have one account at vendor `v`"), "{error}");

    let both = start().tenant(tenant("a", "test:refresh")).tenant(tenant("b", "test:refresh"));
    let client = both.build().await.unwrap();
    for (id, who) in [("a", "tenants `a` and others have one account"), ("b", "tenants `a` and `b` have one account")] {
        let error = client.tenants().set(tenant(id, "test:again")).unwrap_err().to_string();
        assert!(error.contains(who), "{error}");
        assert!(error.contains("different `oauth`") && error.contains("remove the others first"), "{error}");
    }
    assert_eq!(send(&client).await.unwrap(), 200, "nothing has changed");
    client.tenants().remove("b", "v", OnRemove::Drain).unwrap();
    client.tenants().set(tenant("a", "test:again")).unwrap();
    client.tenants().set(tenant("b", "test:again")).unwrap();
    // A tenant that moves to an account of its own needs nobody's consent.
    let own = TenantEntry::new("b", "v").oauth(OAuthEntry::default().refresh_token("test:refresh"));
    client.tenants().set(own).unwrap();
    client.tenants().set(tenant("a", "test:refresh")).unwrap();
}

#[test]
fn incomplete_grants_are_told_by_name() {
    let vendor = |oauth: &str| {
        format!("[vendors.v]\nbase_url = \"https://v.example\"\nunpublished = true\n[vendors.v.oauth]\n{oauth}\n")
    };
    let url = "token_url = \"https://v.example/token\"\n";
    let tenant = |own: &str| format!("[[tenants]]\nid = \"a\"\nvendor = \"v\"\n{own}\n");
    for (text, why) in [
        (vendor("token_url = \"https://v.example/token\""), "`grant` is missing"),
        (vendor("grant = \"refresh_token\""), "`token_url` is missing"),
        (vendor("grant = \"refresh_token\"\ntoken_url = \"http://v.example/token\""), "plain http"),
        (vendor(&format!("grant = \"password\"\n{url}")), "grant"),
        (vendor(&format!("grant = \"refresh_token\"\n{url}client_auth = \"jwt\"")), "client_auth"),
        (vendor(&format!("grant = \"refresh_token\"\n{url}scopes = [\"a b\"]")), "a scope is"),
        (vendor(&format!("grant = \"refresh_token\"\n{url}params = {{ scope = \"a\" }}")), "the grant sets this"),
        (vendor(&format!("grant = \"refresh_token\"\n{url}")) + &tenant("oauth = {}"), "`client_id` is missing"),
        (
            vendor(&format!("grant = \"refresh_token\"\n{url}")) + &tenant("oauth = { client_id = \"env:ID\" }"),
            "`refresh_token` is missing",
        ),
        (
            vendor(&format!("grant = \"client_credentials\"\n{url}")) + &tenant("oauth = { client_id = \"env:ID\" }"),
            "`client_secret` is missing",
        ),
        (
            vendor(&format!("grant = \"github_app\"\n{url}")) + &tenant("oauth = { client_id = \"env:ID\" }"),
            "`private_key` is missing",
        ),
        (
            vendor(&format!("grant = \"refresh_token\"\n{url}client_id = \"env:ID\""))
                + &tenant("credential = \"env:KEY\"\noauth = { refresh_token = \"env:T\" }"),
            "remove one of the two",
        ),
        (
            vendor(&format!("grant = \"refresh_token\"\n{url}client_id = \"env:ID\""))
                + &tenant("oauth = { refresh_token = \"1//0gsecret\" }"),
            "may be a secret",
        ),
        (
            "[vendors.v]\nbase_url = \"https://v.example\"\nunpublished = true\n".to_owned() + &tenant("oauth = {}"),
            "has no `oauth`",
        ),
    ] {
        let error = Config::load(&Sources::new().without_catalogue().file("f.toml", text), 1).unwrap_err().to_string();
        assert!(error.contains(why) && !error.contains("0gsecret"), "{why}: {error}");
    }
}
