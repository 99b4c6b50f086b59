//! The keys of an `[[http]]` section.

use super::reader::Key;
use super::tool;

pub(super) const HTTP: &[Key] = &tool::keys::<{ tool::SHARED + OWN.len() }>(OWN);

const OWN: &[Key] = &[
    Key {
        name: "url",
        allowed: "a URL of http or https, with [places](#places) in its path and behind `?`",
        text: "Where the request goes. Values are percent-encoded, and never leave their segment. Needed",
    },
    Key {
        name: "method",
        allowed: "\"POST\", \"PUT\", \"PATCH\" or \"GET\"",
        text: "How it is asked (`\"POST\"`). A GET has no body: its arguments are in the URL",
    },
    Key {
        name: "headers",
        allowed: "a table: name of a header = a text with [places](#places)",
        text: "Headers of the request. One whose argument is not given is left out; what is no line of printable ASCII is refused",
    },
    Key {
        name: "secret_headers",
        allowed: "a table: name of a header = path of a file",
        text: "Headers whose values are read from files at every call",
    },
    Key {
        name: "bearer_file",
        allowed: "the path of a file",
        text: "Holds the token of `Authorization: Bearer …`, read at every call",
    },
    Key {
        name: "ca_file",
        allowed: "the path of a file (PEM)",
        text: "The authorities that may sign the server's certificate, instead of the public ones. Read when this file is",
    },
    Key {
        name: "body",
        allowed: "JSON whose texts have [places](#places), as a table or as a JSON text",
        text: "The body, always JSON (the arguments as they are). A text that is nothing but `{name}` is the argument's value, of whatever type; a member without a value is left out",
    },
    Key {
        name: "output",
        allowed: "\"auto\", \"text\" or \"json\"",
        text: "What the answer's body is: what its `Content-Type` says (`\"auto\"`), a text, or JSON that becomes `structuredContent`",
    },
    Key {
        name: "effects",
        allowed: "\"by_hints\", \"none\", \"repeatable\" or \"once\"",
        text: "What a request does, and so [what follows when its end is unknown](#when-the-end-is-unknown). By the annotations: `\"none\"` if `readOnlyHint`, `\"repeatable\"` if `idempotentHint`, else `\"once\"`. A service that honours `Idempotency-Key` is `\"repeatable\"`",
    },
    Key {
        name: "retry_statuses",
        allowed: "a list of statuses from 400 to 599",
        text: "Statuses that mean *it did not happen, try again later* (408, 425, 429, 502, 503, 504; with `effects = \"once\"` without 502 and 504, which leave doubt)",
    },
    Key {
        name: "timeout",
        allowed: "a duration like \"30s\"",
        text: "How long one request may take, its answer included; without it as long as the policy's `work_limit`",
    },
    Key {
        name: "response_bytes_max",
        allowed: "a number of bytes",
        text: "What is read of an answer (262144)",
    },
    Key {
        name: "callback_wait",
        allowed: "a duration up to 30 days",
        text: "The service may answer 202 and [call back](#callbacks) within so much time",
    },
    Key {
        name: "cancel_url",
        allowed: "a URL of the same server, with [places](#places)",
        text: "Is POSTed to when the task ends without the result that the service works on",
    },
];
