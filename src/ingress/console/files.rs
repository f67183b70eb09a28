//! The files of the page. They are compiled into the program, so that there is nothing to install and nothing to build.

/// A file of the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct File {
    pub(super) media_type: &'static str,
    pub(super) text: &'static str,
}

macro_rules! files {
    ($path:expr; $($name:literal is $file:literal, $media_type:literal;)+) => {
        match $path {
            $($name => Some(File { media_type: $media_type, text: include_str!(concat!("page/", $file)) }),)+
            _ => None,
        }
    };
}

/// Returns the file with this path.
pub(super) fn file(path: &str) -> Option<File> {
    files! { path;
        "" is "index.html", "text/html; charset=utf-8";
        "icon.svg" is "icon.svg", "image/svg+xml";
        "console.css" is "console.css", "text/css; charset=utf-8";
        "console.js" is "console.js", "text/javascript; charset=utf-8";
        "dom.js" is "dom.js", "text/javascript; charset=utf-8";
        "api.js" is "api.js", "text/javascript; charset=utf-8";
        "words.js" is "words.js", "text/javascript; charset=utf-8";
        "lanes.js" is "lanes.js", "text/javascript; charset=utf-8";
        "lane.js" is "lane.js", "text/javascript; charset=utf-8";
        "letters.js" is "letters.js", "text/javascript; charset=utf-8";
        "queues.js" is "queues.js", "text/javascript; charset=utf-8";
        "events.js" is "events.js", "text/javascript; charset=utf-8";
        "system.js" is "system.js", "text/javascript; charset=utf-8";
    }
}

#[cfg(test)]
mod tests;
