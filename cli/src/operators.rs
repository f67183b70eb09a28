//! What a long-running command that is no gateway serves for operators: health, metrics and a console.

use std::io::Write;

use clap::builder::{BoolishValueParser, FalseyValueParser};
use integration_client::IntegrationClient;
use integration_client::console::Console;
use integration_client::gateway::{Gateway, GatewayBuilder, Listen, Serving};
use metrics_exporter_prometheus::PrometheusHandle;

use crate::output::Failure;

/// The options for what is served. Their variables are not those of `serve`: an environment for both commands, such as
/// that of the container image, must not make a process listen that did not listen before.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Serves health (/~/livez, /~/readyz) and metrics (/~/metrics) at this address with its port, or at `unix:PATH`. Metrics are for
    /// the token of a caller with the right `view`, or for the token that the command prints.
    #[arg(long, value_name = "ADDRESS", env = "INTEGRATION_CLIENT_INTAKE_LISTEN")]
    listen: Option<Listen>,

    /// Asks for no token at that address, which must then be loopback or a Unix socket: for a collector of metrics on this machine.
    /// The console asks for a token all the same.
    #[arg(long, requires = "listen", env = "INTEGRATION_CLIENT_INTAKE_NO_TOKEN", value_parser = BoolishValueParser::new())]
    no_token: bool,

    /// Also serves a console there, at /~/console/, which shows the lanes that wait and why, queues, dead letters and events. Nobody can
    /// change anything in it.
    #[arg(long, requires = "listen", env = "INTEGRATION_CLIENT_INTAKE_CONSOLE", value_parser = FalseyValueParser::new())]
    console: bool,

    /// As --console; callers with the right `operate`, and whoever has the token that the command prints, may also pause and resume
    /// lanes, and send dead letters again or delete them.
    #[arg(long, requires = "listen", env = "INTEGRATION_CLIENT_INTAKE_CONSOLE_OPERATE", value_parser = FalseyValueParser::new())]
    console_operate: bool,
}

impl Args {
    /// Whether something is served.
    pub(crate) fn is_served(&self) -> bool {
        self.listen.is_some()
    }

    /// Begins to serve, and prints the addresses and the token that they ask for.
    pub(crate) async fn serve(
        &self,
        client: &IntegrationClient,
        metrics: Option<PrometheusHandle>,
        out: &mut dyn Write,
    ) -> Result<Option<Serving>, Failure> {
        let Some(listen) = self.listen.clone() else { return Ok(None) };
        let gateway = Gateway::builder(client.clone()).without_sending();
        let gateway = match metrics {
            Some(recorder) => gateway.metrics(move || recorder.render()),
            None => gateway,
        };
        let gateway = if self.no_token { gateway.without_tokens() } else { gateway };
        let gateway = with_console(gateway, client, self.console, self.console_operate);
        let serving = gateway.build().serve(listen).await?;
        let has_console = self.console || self.console_operate;
        match serving.address() {
            Some(address) => {
                writeln!(out, "metrics: http://{address}/~/metrics")?;
                if has_console {
                    writeln!(out, "console: http://{address}/~/console/")?;
                }
            }
            None => writeln!(out, "metrics: /~/metrics at the socket")?,
        }
        if let Some(token) = serving.token() {
            let what = match (self.no_token, has_console) {
                (true, _) => "for the console",
                (false, true) => "for metrics and console",
                (false, false) => "for metrics",
            };
            writeln!(out, "token: {token} ({what}; no [[callers]] are configured)")?;
        }
        out.flush()?;
        Ok(Some(serving))
    }
}

/// Adds the console that `--console` and `--console-operate` ask for.
pub(crate) fn with_console(
    gateway: GatewayBuilder,
    client: &IntegrationClient,
    console: bool,
    operate: bool,
) -> GatewayBuilder {
    match (console, operate) {
        (_, true) => gateway.console(&Console::builder(client.clone()).build()),
        (true, false) => gateway.console(&Console::builder(client.clone()).read_only().build()),
        (false, false) => gateway,
    }
}
