//! `reindex_corpus`: one tool whose calls are sometimes fast and sometimes slow.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use worker::{
    Arguments, CallToolResult, Context, Definition, Progress, Tool, ToolAnnotations, ToolError,
    ToolSpec,
};

/// Between two documents of a large collection.
const PAUSE: Duration = Duration::from_millis(100);

/// Builds an inverted index of a collection of generated documents.
pub(crate) struct ReindexCorpus;

#[derive(Deserialize)]
struct Wanted {
    collection: Collection,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Collection {
    Small,
    Large,
}

impl Collection {
    fn documents(self) -> u32 {
        match self {
            Self::Small => 50,
            Self::Large => 1800,
        }
    }
}

const WORDS: [&str; 16] = [
    "task", "lease", "worker", "gateway", "journal", "step", "hint", "epoch", "claim", "token",
    "query", "index", "row", "lock", "retry", "queue",
];

/// The text of a document: always the same for the same number.
fn document(number: u32) -> impl Iterator<Item = &'static str> {
    (0..200_u32).map(move |at| {
        let mixed = number
            .wrapping_mul(2_654_435_761)
            .wrapping_add(at.wrapping_mul(40_503))
            >> 7;
        WORDS[mixed as usize % WORDS.len()]
    })
}

#[worker::async_trait]
impl Tool for ReindexCorpus {
    fn spec(&self) -> ToolSpec {
        let schema = json!({
            "type": "object",
            "properties": {
                "collection": {
                    "type": "string",
                    "enum": ["small", "large"],
                    "description": "small takes well under a second, large some minutes."
                }
            },
            "required": ["collection"]
        });
        let definition = Definition::new("reindex_corpus", &schema)
            .with_title("Reindex a corpus")
            .with_description("Builds the search index of a collection anew.")
            .with_annotations(ToolAnnotations {
                idempotent_hint: Some(true),
                ..Default::default()
            });
        let mut spec = ToolSpec::new(definition);
        spec.policy.inline_budget = Some(Duration::from_secs(2));
        spec
    }

    async fn call(
        &self,
        context: &mut Context,
        arguments: Arguments,
    ) -> Result<CallToolResult, ToolError> {
        let Wanted { collection } = arguments.parse()?;
        let documents = collection.documents();
        let mut index: BTreeMap<&str, u64> = BTreeMap::new();
        for number in 0..documents {
            for word in document(number) {
                *index.entry(word).or_default() += 1;
            }
            if matches!(collection, Collection::Large) {
                context.pause(PAUSE).await?;
                if number % 10 == 0 {
                    let message = format!("indexed {number} of {documents} documents");
                    let progress = Progress::new(number).of(documents).with_message(message);
                    context.report(progress).await;
                }
            }
        }
        let postings: u64 = index.values().sum();
        let terms = index.len();
        let text = format!("Indexed {documents} documents: {terms} terms, {postings} postings.");
        let mut result = CallToolResult::text(text);
        result.structured_content =
            Some(json!({ "documents": documents, "terms": terms, "postings": postings }));
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use worker::testkit::Kit;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_index_depends_on_the_collection_alone() {
        for (collection, documents) in [("small", 50), ("large", 1800)] {
            let run = Kit::new(ReindexCorpus)
                .arguments(json!({ "collection": collection }))
                .run()
                .await;
            let content = run.result().unwrap().structured_content.clone().unwrap();
            assert_eq!(content["documents"], documents);
            assert_eq!(content["postings"], documents * 200);
        }
    }
}
