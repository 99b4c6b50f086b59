//! The methods that are served: their names, and the scopes that each needs.

use crate::auth::Scopes;

/// The methods that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Discover,
    ToolsList,
    ToolsCall,
    ResourcesList,
    TemplatesList,
    ResourcesRead,
    PromptsList,
    PromptsGet,
    Complete,
    TasksGet,
    TasksUpdate,
    TasksCancel,
    Listen,
}

impl Method {
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "server/discover" => Self::Discover,
            "tools/list" => Self::ToolsList,
            "tools/call" => Self::ToolsCall,
            "resources/list" => Self::ResourcesList,
            "resources/templates/list" => Self::TemplatesList,
            "resources/read" => Self::ResourcesRead,
            "prompts/list" => Self::PromptsList,
            "prompts/get" => Self::PromptsGet,
            "completion/complete" => Self::Complete,
            "tasks/get" => Self::TasksGet,
            "tasks/update" => Self::TasksUpdate,
            "tasks/cancel" => Self::TasksCancel,
            "subscriptions/listen" => Self::Listen,
            _ => return None,
        })
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Discover => "server/discover",
            Self::ToolsList => "tools/list",
            Self::ToolsCall => "tools/call",
            Self::ResourcesList => "resources/list",
            Self::TemplatesList => "resources/templates/list",
            Self::ResourcesRead => "resources/read",
            Self::PromptsList => "prompts/list",
            Self::PromptsGet => "prompts/get",
            Self::Complete => "completion/complete",
            Self::TasksGet => "tasks/get",
            Self::TasksUpdate => "tasks/update",
            Self::TasksCancel => "tasks/cancel",
            Self::Listen => "subscriptions/listen",
        }
    }

    /// What the caller's token must allow, beside what a tool or a provider asks for.
    pub(crate) fn scopes(self, of: &Scopes) -> &[String] {
        match self {
            Self::Discover => &[],
            Self::ToolsList | Self::ResourcesList | Self::TemplatesList | Self::PromptsList => {
                &of.list
            }
            Self::ToolsCall => &of.call,
            Self::ResourcesRead => &of.resources,
            Self::PromptsGet | Self::Complete => &of.prompts,
            Self::TasksGet | Self::Listen => &of.read,
            Self::TasksUpdate => &of.update,
            Self::TasksCancel => &of.cancel,
        }
    }

    /// Only for who declared the extension.
    pub(crate) fn is_about_tasks(self) -> bool {
        match self {
            Self::TasksGet | Self::TasksUpdate | Self::TasksCancel => true,
            Self::Discover
            | Self::ToolsList
            | Self::ToolsCall
            | Self::ResourcesList
            | Self::TemplatesList
            | Self::ResourcesRead
            | Self::PromptsList
            | Self::PromptsGet
            | Self::Complete
            | Self::Listen => false,
        }
    }
}
