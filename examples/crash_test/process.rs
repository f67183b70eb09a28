//! Starts, stops, continues and kills a worker from outside.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::Fallible;

/// A child process that reads commands from its input and reports in lines.
pub(crate) struct Worker {
    process: Child,
    /// The lines of the worker's output, with the times at which they were read.
    lines: mpsc::Receiver<(Instant, String)>,
    /// The lines of its error output, with the times at which they were read.
    warnings: mpsc::Receiver<(Instant, String)>,
}

/// The output and the end of a worker.
pub(crate) struct Ended {
    pub(crate) said: Vec<String>,
    pub(crate) warned: Vec<String>,
    /// Whether the worker had ended by itself, at its named point.
    pub(crate) at_point: bool,
}

/// Reads the lines of a pipe as they come.
fn lines(pipe: impl Read + Send + 'static) -> mpsc::Receiver<(Instant, String)> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if sender.send((Instant::now(), line)).is_err() {
                break;
            }
        }
    });
    lines
}

impl Worker {
    /// Starts `command` and waits for the line `ready`. If `may_end` is set, the process may also end before it prints
    /// that line.
    pub(crate) fn start(mut command: Command, may_end: bool) -> Fallible<Worker> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn()?;
        let output = lines(process.stdout.take().ok_or("the worker has no output")?);
        let warnings = lines(process.stderr.take().ok_or("the worker has no second output")?);
        let worker = Worker { process, lines: output, warnings };
        loop {
            match worker.lines.recv_timeout(Duration::from_secs(60)) {
                Ok((_, line)) if line == "ready" => return Ok(worker),
                // A test harness that runs the worker prints its own lines first.
                Ok(_) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) if may_end => return Ok(worker),
                Err(_) => {
                    let why: Vec<String> = worker.warnings.try_iter().map(|(_, line)| line).collect();
                    return Err(format!("the worker did not start: {why:?}").into());
                }
            }
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends the worker a line. Fails if it has ended.
    #[allow(dead_code, reason = "examples/soak uses this file too, and only its processes take commands")]
    pub(crate) fn tell(&mut self, line: &str) -> Fallible<()> {
        let input = self.process.stdin.as_mut().ok_or("the worker has no input")?;
        Ok(input.write_all(format!("{line}\n").as_bytes())?)
    }

    /// Waits for at most `time`, and returns whether the process has ended by itself.
    pub(crate) fn ends_within(&mut self, time: Duration) -> Fallible<bool> {
        let until = Instant::now() + time;
        while self.process.try_wait()?.is_none() {
            if Instant::now() > until {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(true)
    }

    pub(crate) fn signal(&self, signal: &str) -> Fallible<()> {
        let done = Command::new("kill").args([signal, &self.id().to_string()]).status()?;
        if done.success() { Ok(()) } else { Err(format!("kill {signal} failed").into()) }
    }

    /// The output since the last call of this method.
    pub(crate) fn heard(&self) -> Vec<(Instant, String)> {
        self.lines.try_iter().collect()
    }

    /// Closes the worker's input, so that it finishes what it has begun and ends. Returns the same as
    /// [`kill`](Self::kill).
    pub(crate) fn finish(mut self) -> Fallible<Ended> {
        drop(self.process.stdin.take());
        if !self.ends_within(Duration::from_secs(30))? {
            println!("a worker did not end by itself");
        }
        self.kill()
    }

    /// Kills the worker, and returns all of its output that no caller has read.
    pub(crate) fn kill(mut self) -> Fallible<Ended> {
        let at_point = self.process.try_wait()?.is_some();
        if !at_point {
            self.process.kill()?;
        }
        let status = self.process.wait()?;
        let said = self.lines.iter().map(|(_, line)| line).collect();
        let warned: Vec<String> = self.warnings.iter().map(|(_, line)| line).collect();
        if at_point && status.code().is_some_and(|code| code != 0) {
            return Err(format!("the worker ended by itself ({status}): {warned:?}").into());
        }
        Ok(Ended { said, warned, at_point })
    }
}
