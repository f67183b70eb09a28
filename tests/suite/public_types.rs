//! Every public type can be shared between threads and printed: middlewares, services and the state of a web framework
//! require that of their fields.
#![allow(clippy::unwrap_used, reason = "a file that cannot be read fails the test")]

use std::fmt::Debug;
use std::fs;
use std::path::Path;

use integration_client::config::*;
use integration_client::console::{Access, Console, ConsoleBuilder};
use integration_client::dead_letter::{
    AttemptRecord, BadLine, Content, DeadLetter, JsonLinesSink, KeptHeaders, LetterRequest, MemorySink, Phase,
    ReadError, Reason, TracingSink,
};
use integration_client::events::{Event, EventKind, Events, LimitOf};
use integration_client::gateway::{Gateway, GatewayBody, GatewayBuilder, Listen, Serving};
use integration_client::metrics::{Kind, Metric};
use integration_client::outbox::{
    Batch, BatchCounts, Checked, DeadLetters, Delivered, Ended, Intake, KeptLetter, KeptResponse, Line, MessageRef,
    Numbers, Outbox, Queue, Receipt, Redriven, Reply, Status, UntakenReplies, WorkerStatus,
};
use integration_client::signals::{Dialect, Name, ResetMeans, Rule, Signals, Stated, WaitFrom, Window, Windows};
use integration_client::status::*;
use integration_client::tower::{
    AnsweredBody, AnsweringService, LaneLayer, LaneMiddleware, LaneService, Paced, PacedBody, PacingMiddleware,
};
use integration_client::transport::{
    Answer, AnswerBody, Credentials, Exchange, KeptToken, ReqwestTransport, Sent, SigningParts, Token, TokenOwner,
    TransportError,
};
use integration_client::{
    Body, Class, Delivery, Error, ErrorKind, Headroom, IntegrationClient, IntegrationClientBuilder, Lane, LastResponse,
    LiveConfig, OnRemove, Permit, PermitFeedback, Priority, Request, Response, ResponseBody, ResponseInfo, SendOptions,
    SharedLimit, SharingMode, SharingStatus, Tenants, WaitReason,
};
use integration_client::{clock::Clock, store::Store};

use crate::support::repository;

fn shareable<T: Send + Sync + Debug>() {}

macro_rules! all_shareable {
    ($($type:ty),* $(,)?) => { $( shareable::<$type>(); )* };
}

#[test]
#[rustfmt::skip]
fn public_types_can_be_shared_and_printed() {
    all_shareable!(
        IntegrationClient, IntegrationClientBuilder, Lane, Permit, PermitFeedback, Tenants<'static>, LiveConfig<'static>,
        Body, Request, Response, ResponseBody, Headroom, WaitReason, Priority, Class, Delivery, Error, ErrorKind, LastResponse,
        OnRemove, SendOptions, SharedLimit, SharingMode, SharingStatus, ResponseInfo, LaneService, LaneLayer, AnsweringService,
        AnsweredBody, Paced<LaneService>, PacedBody<ResponseBody>,
    );
    all_shareable!(
        Config, Vendors, Vendor, Endpoint, AuthScheme, Connection, Tenant, LimitEntry, OAuthEntry, TenantEntry, FileSource,
        Sources, StaticSource, RemoteSource, Limit, Scope, LimitKind, Rate, Resets, Period, Algorithm, Unit, Source, CredentialRef, OAuth, OAuthGrant,
        ClientAuth, JwtAlgorithm, Costs, Finding, RetryPolicy, OnAmbiguous, Throttle, Keep, AtRest, Idempotency, KeyCarrier, SecretHeader,
        OnUnsendable, Shape, Caller, May, Rewrite, Sharing, SharingFloor, LaneMiddleware, PacingMiddleware, Gateway,
        GatewayBuilder, GatewayBody, Listen, Serving, Access, Console, ConsoleBuilder,
        LaneState, LaneSort, LaneQuery, LanePage, LaneSummary, SourceKind, SourceStatus,
    );
    all_shareable!(
        AttemptRecord, BadLine, Content, DeadLetter, JsonLinesSink, KeptHeaders, LetterRequest, MemorySink, Phase, ReadError, Reason,
        TracingSink, Event, EventKind, Events, LimitOf, Kind, Metric, Clock, Store,
        Batch, BatchCounts, Checked, DeadLetters, Delivered, Ended, Intake, KeptLetter, KeptResponse, Line, MessageRef, Numbers, Outbox,
        Queue, Receipt, Redriven, Reply, Status, UntakenReplies, WorkerStatus,
    );
    all_shareable!(
        Dialect, Name, ResetMeans, Rule, Signals, Stated, WaitFrom, Window, Windows,
        Answer, AnswerBody, Credentials, Exchange, KeptToken, ReqwestTransport, Sent, SigningParts<'static>, Token, TokenOwner,
        TransportError,
        ByPriority<u64>, TenantStatus, TokenStatus, TokenState, LimitStatus, PausedBy, PauseStatus, ThrottleStatus, WaitStatus,
        Check, VendorStatus, Flow, UnderWay, ClientStatus, CleanupStatus, Estimate, DeadLetterCounts,
    );
}

/// A new public type must be added to the list above. A lint makes sure that everything `pub` in the sources is really
/// public.
#[test]
fn list_of_public_types_is_complete() {
    fn walk(folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            if matches!(name, "testing" | "tests" | "faults" | "probe" | "off") {
                continue;
            }
            if path.is_dir() {
                walk(&path, found);
                continue;
            }
            for line in fs::read_to_string(&path).unwrap().lines() {
                let line = line.trim_start();
                let rest = line.strip_prefix("pub struct ").or_else(|| line.strip_prefix("pub enum "));
                found.extend(rest.map(|rest| rest.chars().take_while(|letter| letter.is_alphanumeric()).collect()));
            }
        }
    }
    let mut found = Vec::new();
    walk(&repository().join("src"), &mut found);
    assert!(found.len() > 100);
    let listed = include_str!("public_types.rs");
    for name in found {
        let is_word = |at: usize| {
            let around = [listed[..at].chars().next_back(), listed[at + name.len()..].chars().next()];
            around.into_iter().flatten().all(|letter| !letter.is_alphanumeric())
        };
        assert!(listed.match_indices(&*name).any(|(at, _)| is_word(at)), "{name} is not in the list");
    }
}
