//! A server with tower-mcp whose one tool does nothing and becomes a task, kept in its memory. Its argument
//! is the port to listen on.

use std::sync::Arc;

use serde::Deserialize;
use tower_mcp::protocol::TaskSupportMode;

use tower_mcp::transport::http::HttpTransport;
use tower_mcp::{CallToolResult, McpRouter, MemoryTaskStore, TaskRetentionLimits, ToolBuilder};

#[derive(Debug, Deserialize, schemars::JsonSchema)]
struct Input {
    call: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let port: u16 = std::env::args()
        .nth(1)
        .ok_or("the port is missing")?
        .parse()?;
    let tool = ToolBuilder::new("noop")
        .description("Does nothing.")
        .task_support(TaskSupportMode::Optional)
        .handler(|input: Input| async move { Ok(CallToolResult::text(input.call)) })
        .build();
    // By default it refuses the 1,025th task of five minutes.
    let store = MemoryTaskStore::with_retention_limits(TaskRetentionLimits::unbounded());
    let router = McpRouter::new().server_info("peer", "1.0.0").tool(tool);
    let router = router.task_store(Arc::new(store)).with_tasks();
    let router = HttpTransport::new(router).into_router_at("/mcp");
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    axum::serve(listener, router).await?;
    Ok(())
}
