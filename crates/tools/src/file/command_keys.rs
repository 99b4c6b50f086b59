//! The keys of a `[[command]]` section.

use super::reader::Key;
use super::tool;

pub(super) const COMMAND: &[Key] = &tool::keys::<{ tool::SHARED + OWN.len() }>(OWN);

const OWN: &[Key] = &[
    Key {
        name: "program",
        allowed: "the path of an executable file, or its name on the PATH",
        text: "What to run, never through a shell; a relative path is relative to this file. Needed",
    },
    Key {
        name: "arguments",
        allowed: "a list of texts",
        text: "The program's first arguments, the same at every call",
    },
    Key {
        name: "flags",
        allowed: "a table: name of an argument = \"--flag\"",
        text: "Arguments of the call that go onto the command line: `--flag=value`, or `-f value`; true is the flag alone, false is nothing, a list is a flag for each",
    },
    Key {
        name: "positional",
        allowed: "a list of names of arguments",
        text: "Arguments of the call whose values are the last words of the command line",
    },
    Key {
        name: "separator",
        allowed: "a text like \"--\", or \"\" for none",
        text: "The word before the positional ones (`\"--\"`): what comes after it is no flag, whatever it begins with. Without one, a value that begins with `-` is refused. A program that does not know `--`, such as most shell scripts, gets it as its first argument: `\"\"` for those",
    },
    Key {
        name: "stdin",
        allowed: "true or false",
        text: "Whether the arguments are on standard input, as JSON (true)",
    },
    Key {
        name: "env",
        allowed: "a table of texts",
        text: "Variables of its environment",
    },
    Key {
        name: "env_pass",
        allowed: "a list of names of variables",
        text: "Variables of the worker's environment that it may see as well",
    },
    Key {
        name: "secret_env",
        allowed: "a table: name of a variable = path of a file",
        text: "Variables whose values are read from files at every start",
    },
    Key {
        name: "dir",
        allowed: "the path of a folder",
        text: "Its working folder (this file's)",
    },
    Key {
        name: "output",
        allowed: "\"text\" or \"json\"",
        text: "What standard output is: a text, or JSON that becomes `structuredContent`. `\"json\"` if there is an `output_schema`, else `\"text\"`",
    },
    Key {
        name: "protocol",
        allowed: "\"none\", \"stdout\" or \"fd3\"",
        text: "Whether it speaks the [line protocol](#the-line-protocol), and where",
    },
    Key {
        name: "effects",
        allowed: "\"by_hints\", \"none\", \"repeatable\" or \"once\"",
        text: "What a run does outside, and so [what follows when its end is unknown](#when-the-end-is-unknown). By the annotations: `\"none\"` if `readOnlyHint`, `\"repeatable\"` if `idempotentHint`, else `\"once\"`",
    },
    Key {
        name: "grace",
        allowed: "a duration like \"2s\"",
        text: "From SIGTERM to SIGKILL; ¾ of `worker.stop_grace`, which is also the most",
    },
    Key {
        name: "memory_bytes_max",
        allowed: "a number of bytes, at least 1048576",
        text: "Address space of each of its processes (`RLIMIT_AS`)",
    },
    Key {
        name: "output_bytes_max",
        allowed: "a number of bytes",
        text: "What it may write to standard output (262144)",
    },
    Key {
        name: "retry_exit_codes",
        allowed: "a list of exit codes from 1 to 255",
        text: "Exit codes that mean *it did not happen, try again later*",
    },
];
