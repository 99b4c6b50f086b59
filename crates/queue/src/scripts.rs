//! The Lua scripts: each step that must be atomic in Redis, one file in `lua/` each.

use redis::Script;

/// All scripts, with their hashes computed once.
pub(crate) struct Scripts {
    pub touch: Script,
    pub push: Script,
    pub take: Script,
    pub recover: Script,
    pub reclaim: Script,
    pub ack: Script,
    pub hand_back: Script,
    pub leave: Script,
    pub reap: Script,
    pub depth: Script,
    pub stream: Script,
}

impl Scripts {
    pub(crate) fn new() -> Scripts {
        Scripts {
            touch: Script::new(include_str!("lua/touch.lua")),
            push: Script::new(include_str!("lua/push.lua")),
            take: Script::new(include_str!("lua/take.lua")),
            recover: Script::new(include_str!("lua/recover.lua")),
            reclaim: Script::new(include_str!("lua/reclaim.lua")),
            ack: Script::new(include_str!("lua/ack.lua")),
            hand_back: Script::new(include_str!("lua/hand_back.lua")),
            leave: Script::new(include_str!("lua/leave.lua")),
            reap: Script::new(include_str!("lua/reap.lua")),
            depth: Script::new(include_str!("lua/depth.lua")),
            stream: Script::new(include_str!("lua/stream.lua")),
        }
    }
}
