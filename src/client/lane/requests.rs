//! Requests to a lane's vendor.

use super::Lane;
use crate::request::{Method, Request};

impl Lane {
    /// A request to this lane's vendor; [`get`](Lane::get) and its like are shorter.
    ///
    /// ```no_run
    /// # use integration_client::{IntegrationClient, Priority};
    /// # async fn run(client: IntegrationClient) -> Result<(), integration_client::Error> {
    /// let acme = client.lane("acme", "github")?;
    /// let user = acme.send(Priority::High, acme.get("/user")).await?;
    /// # drop(user); Ok(()) }
    /// ```
    pub fn request(&self, method: Method, path: impl Into<String>) -> Request {
        Request::new(method, &*self.route.vendor.name, path)
    }

    /// A GET to this lane's vendor.
    pub fn get(&self, path: impl Into<String>) -> Request {
        self.request(Method::GET, path)
    }

    /// A POST to this lane's vendor.
    pub fn post(&self, path: impl Into<String>) -> Request {
        self.request(Method::POST, path)
    }

    /// A PUT to this lane's vendor.
    pub fn put(&self, path: impl Into<String>) -> Request {
        self.request(Method::PUT, path)
    }

    /// A PATCH to this lane's vendor.
    pub fn patch(&self, path: impl Into<String>) -> Request {
        self.request(Method::PATCH, path)
    }

    /// A DELETE to this lane's vendor.
    pub fn delete(&self, path: impl Into<String>) -> Request {
        self.request(Method::DELETE, path)
    }
}
