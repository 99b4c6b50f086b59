//! One file a method: from params to one function of the store.

mod listened_lists;
mod listened_resources;
mod page;
pub(crate) mod provided_ask;
pub(crate) mod provided_lists;
pub(crate) mod server_discover;
pub(crate) mod subscriptions_listen;
pub(crate) mod tasks_cancel;
pub(crate) mod tasks_get;
pub(crate) mod tasks_update;
pub(crate) mod tools_call;
pub(crate) mod tools_list;
