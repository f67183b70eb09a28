//! The client's spans and metrics in OpenTelemetry: `cargo run -p service --bin opentelemetry`.
//!
//! tracing-opentelemetry exports the spans. A recorder of the crate `metrics` (`recorder.rs`) updates OpenTelemetry's
//! instruments. Both reach a collector by OTLP over HTTP; here the collector runs on this machine (`collector.rs`), and
//! the program prints what arrived.
//!
//! A vendor receives the trace context only if its entry says `propagate_trace = true`: trace ids would tell other
//! vendors about the caller's system.

#![allow(clippy::print_stdout, reason = "a program for the command line")]
#![allow(clippy::disallowed_methods, reason = "programs spawn and measure; the library does not")]

mod collector;
mod recorder;

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use collector::Collector;
use integration_client::config::TenantEntry;
use integration_client::{IntegrationClient, Priority, Request};
use opentelemetry::metrics::MeterProvider;
use opentelemetry::trace::TraceContextExt;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{MetricExporter, Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use recorder::OtelRecorder;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tracing::{Instrument, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let collector = Collector::start().await?;
    let (traces, metrics) = telemetry(&collector)?;
    let (vendor, mut headers) = vendor().await?;

    let entry = |name: &str, more: &str| {
        format!(
            "[vendors.{name}]\nbase_url = \"{vendor}\"\nauth = {{ scheme = \"none\" }}\n{more}\
            [[vendors.{name}.limits]]\nname = \"second\"\nlimit = 100\nwindow = \"1s\"\n"
        )
    };
    let client = IntegrationClient::builder()
        .without_catalogue()
        .vendors_toml(entry("own", "propagate_trace = true\n") + &entry("foreign", ""))
        .tenant(TenantEntry::new("acme", "own"))
        .tenant(TenantEntry::new("acme", "foreign"))
        .build()
        .await?;

    let checkout = tracing::info_span!(target: "service", "checkout");
    let trace = checkout.context().span().span_context().trace_id().to_string();
    let mut told = Vec::new();
    for vendor in ["own", "foreign"] {
        let request = Request::get(vendor, "/orders").trace_parent(trace_parent(&checkout));
        let answer = client.send("acme", Priority::Normal, request).instrument(checkout.clone()).await?;
        answer.bytes().await?;
        let arrived = headers.recv().await.ok_or("the vendor is gone")?;
        told.push(arrived.get("traceparent").map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()));
    }
    drop(checkout);
    println!("traceparent at the vendor that may know: {:?}, at the other: {:?}", told[0], told[1]);

    // The client updates counters and gauges once a second.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    // Both calls block until the collector has answered, which happens on other threads of the runtime.
    tokio::task::block_in_place(|| traces.shutdown().and_then(|()| metrics.shutdown()))?;

    let (spans, metrics) = collector.seen();
    let of_trace: Vec<&str> = spans.iter().filter(|span| span.trace == trace).map(|span| &*span.name).collect();
    println!("spans of the trace: {}", of_trace.join(", "));
    println!("metrics: {}", metrics.iter().map(String::as_str).collect::<Vec<_>>().join(", "));
    let is_told = told[0].as_deref().is_some_and(|header| header.contains(&trace)) && told[1].is_none();
    let has_all = ["checkout", "integration_client.send", "attempt"].iter().all(|name| of_trace.contains(name))
        && metrics.contains("integration_client_requests_total")
        && metrics.contains("http_client_request_duration_seconds");
    println!("opentelemetry: spans={} metrics={} propagated={is_told}", of_trace.len(), metrics.len());
    if is_told && has_all { Ok(()) } else { Err("the collector or a vendor did not see what it should".into()) }
}

/// Sends this process's spans and metrics to the collector.
fn telemetry(collector: &Collector) -> Result<(SdkTracerProvider, SdkMeterProvider), Box<dyn Error>> {
    let resource = Resource::builder().with_service_name("service").build();
    let spans = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpJson)
        .with_endpoint(format!("{}/v1/traces", collector.url()))
        .with_http_client(collector.sender())
        .build()?;
    let traces = SdkTracerProvider::builder().with_resource(resource.clone()).with_batch_exporter(spans).build();
    // The client's spans are at debug level. Without the filter, spans of the exporter's own connection would be
    // exported too.
    let wanted = Targets::new()
        .with_target("integration_client", tracing::Level::DEBUG)
        .with_target("service", tracing::Level::INFO);
    let layer = tracing_opentelemetry::layer().with_tracer(traces.tracer("service")).with_filter(wanted);
    tracing_subscriber::registry().with(layer).init();

    let exporter = MetricExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpJson)
        .with_endpoint(format!("{}/v1/metrics", collector.url()))
        .with_http_client(collector.sender())
        .build()?;
    let metrics = SdkMeterProvider::builder().with_resource(resource).with_periodic_exporter(exporter).build();
    // Install the recorder before the client sends: the client uses the recorder that is installed when it records its
    // first metric.
    metrics::set_global_recorder(OtelRecorder::new(metrics.meter("integration-client")))?;
    Ok((traces, metrics))
}

/// The caller's span as a `traceparent` header.
fn trace_parent(span: &Span) -> String {
    let context = span.context();
    let span = context.span().span_context().clone();
    format!("00-{}-{}-{:02x}", span.trace_id(), span.span_id(), span.trace_flags().to_u8())
}

/// A vendor that passes on the headers of the requests that arrive.
async fn vendor() -> Result<(String, mpsc::UnboundedReceiver<HeaderMap>), Box<dyn Error>> {
    let (arrived, headers) = mpsc::unbounded_channel();
    let keep = async |State(arrived): State<mpsc::UnboundedSender<HeaderMap>>, headers: HeaderMap| {
        let _ = arrived.send(headers);
        "ok"
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let app = Router::new().fallback(keep).with_state(arrived);
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok((url, headers))
}
