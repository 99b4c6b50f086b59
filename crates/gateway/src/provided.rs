//! What is provided beside tools, as this process last read it: who lists what, and whom to ask.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use protocol::completion::Reference;
use protocol::discover;
use protocol::prompts::Prompt;
use protocol::template::UriTemplate;
use protocol::tools::Tool;
use serde_json::json;
use store::{ProviderEntry, ProviderSpec, ToolSpec};

use crate::catalog::Entry;

/// One provider, ready to be asked.
pub(crate) struct Provider {
    pub(crate) spec: Arc<ProviderSpec>,
    digest: Vec<u8>,
    /// A worker was seen serving it lately.
    pub(crate) alive: bool,
    /// Its jobs, as a tool that nobody can call.
    pub(crate) job: Arc<Entry>,
}

impl Provider {
    /// It tells when its resources change.
    pub(crate) fn tells(&self) -> bool {
        let resources = self.spec.resources.as_ref();
        resources.is_some_and(|resources| resources.subscribe)
    }

    fn literal_prefixes(&self) -> impl Iterator<Item = &String> {
        self.spec
            .resources
            .iter()
            .flat_map(|resources| &resources.prefixes)
    }
}

/// Something that is listed, and whose it is.
pub(crate) struct Listed<T> {
    /// As the list shows it.
    pub(crate) definition: Bytes,
    pub(crate) provider: Arc<Provider>,
    pub(crate) item: T,
}

/// By what it is asked by.
pub(crate) type Lists<T> = BTreeMap<String, Listed<T>>;

/// All that is provided at one moment. Where two providers list the same, the first by name has it.
#[derive(Default)]
pub(crate) struct Provided {
    providers: Vec<Arc<Provider>>,
    /// By URI.
    pub(crate) resources: Lists<()>,
    /// By their text.
    pub(crate) templates: Lists<UriTemplate>,
    /// By name.
    pub(crate) prompts: Lists<Prompt>,
    /// What is advertised.
    pub(crate) serves: discover::Provided,
    /// Moves when what is listed changes: resources with templates, prompts.
    pub(crate) resources_generation: u64,
    pub(crate) prompts_generation: u64,
}

/// The items of a list that come after `key`, in order; all without one.
pub(crate) fn after<'a, T>(
    list: &'a Lists<T>,
    key: Option<&str>,
) -> impl Iterator<Item = (&'a String, &'a Listed<T>)> {
    use std::ops::Bound::{Excluded, Unbounded};
    let from = key.map_or(Unbounded, Excluded);
    list.range::<str, _>((from, Unbounded))
}

impl Provided {
    /// What need not be sent again.
    pub(crate) fn digests(&self) -> Vec<Vec<u8>> {
        let digests = self.providers.iter().map(|p| p.digest.clone());
        digests.collect()
    }

    /// Whose resource this is, listed or not: by its URI, else by the template or prefix that says
    /// most of it.
    pub(crate) fn resource(&self, uri: &str) -> Option<&Arc<Provider>> {
        if let Some(listed) = self.resources.get(uri) {
            return Some(&listed.provider);
        }
        let templates = self.templates.values().filter(|listed| {
            // The cheap half of the match first.
            uri.starts_with(literal(&listed.item)) && listed.item.matches(uri).is_some()
        });
        let templates = templates.map(|listed| (literal(&listed.item).len(), &listed.provider));
        let prefixes = self.providers.iter().flat_map(|provider| {
            let fitting = provider
                .literal_prefixes()
                .filter(|prefix| uri.starts_with(prefix.as_str()));
            fitting.map(move |prefix| (prefix.len(), provider))
        });
        // Of equals the last: a template comes before a prefix.
        prefixes
            .chain(templates)
            .max_by_key(|(length, _)| *length)
            .map(|(_, provider)| provider)
    }

    /// Who completes a value of this.
    pub(crate) fn completing(&self, reference: &Reference) -> Option<&Arc<Provider>> {
        match reference {
            Reference::Prompt(name) => self.prompts.get(name).map(|listed| &listed.provider),
            Reference::Resource(uri) => match self.templates.get(uri) {
                Some(listed) => Some(&listed.provider),
                None => self.resource(uri),
            },
        }
    }

    /// What was read now; the same where nothing changed.
    pub(crate) fn updated(self: &Arc<Self>, read: Vec<ProviderEntry>) -> Arc<Self> {
        let known: HashMap<&[u8], &Arc<Provider>> = self
            .providers
            .iter()
            .map(|provider| (provider.digest.as_slice(), provider))
            .collect();
        let mut providers = Vec::with_capacity(read.len());
        for entry in read {
            let before = known.get(entry.digest.as_slice()).copied();
            let same = before
                .filter(|before| before.alive == entry.alive && before.job.paused == entry.paused);
            if let Some(same) = same {
                providers.push(Arc::clone(same));
                continue;
            }
            let spec = entry
                .spec
                .map(Arc::new)
                .or_else(|| before.map(|before| Arc::clone(&before.spec)));
            // It was forgotten meanwhile: sent again at the next look.
            let Some(spec) = spec else { continue };
            match Provider::new(spec, entry.digest, (entry.alive, entry.paused)) {
                Ok(provider) => providers.push(Arc::new(provider)),
                Err(problem) => {
                    tracing::error!(provider = entry.name, problem, "provider cannot be served");
                }
            }
        }
        let same = providers.len() == self.providers.len()
            && std::iter::zip(&providers, &self.providers).all(|(a, b)| Arc::ptr_eq(a, b));
        if same {
            return Arc::clone(self);
        }
        Arc::new(self.listing(providers))
    }

    fn listing(&self, providers: Vec<Arc<Provider>>) -> Self {
        let mut new = Self::default();
        for provider in &providers {
            let spec = &provider.spec;
            if let Some(resources) = &spec.resources {
                new.serves.resources = true;
                new.serves.subscribe |= resources.subscribe;
                for resource in &resources.list {
                    let definition = resource.to_json();
                    list(
                        &mut new.resources,
                        &resource.uri,
                        provider,
                        (definition, ()),
                    );
                }
                for template in &resources.templates {
                    // It was checked by whoever wrote it.
                    let Ok(compiled) = UriTemplate::parse(&template.uri_template) else {
                        continue;
                    };
                    let item = (template.to_json(), compiled);
                    list(&mut new.templates, &template.uri_template, provider, item);
                }
            }
            if let Some(prompts) = &spec.prompts {
                new.serves.prompts = true;
                for prompt in prompts {
                    let item = (prompt.to_json(), prompt.clone());
                    list(&mut new.prompts, &prompt.name, provider, item);
                }
            }
            new.serves.completions |= spec.completes;
        }
        let moved = |moves: bool, before: u64| before + u64::from(moves);
        let resources =
            differ(&self.resources, &new.resources) || differ(&self.templates, &new.templates);
        new.resources_generation = moved(resources, self.resources_generation);
        let prompts = differ(&self.prompts, &new.prompts);
        new.prompts_generation = moved(prompts, self.prompts_generation);
        new.providers = providers;
        new
    }
}

fn list<T>(
    lists: &mut Lists<T>,
    key: &str,
    provider: &Arc<Provider>,
    (definition, item): (Bytes, T),
) {
    lists.entry(key.to_owned()).or_insert_with(|| Listed {
        definition,
        provider: Arc::clone(provider),
        item,
    });
}

/// Whether a caller of the list would see a difference.
fn differ<T>(a: &Lists<T>, b: &Lists<T>) -> bool {
    let scopes = |listed: &Listed<T>| listed.provider.spec.policy.scopes.clone();
    a.len() != b.len()
        || std::iter::zip(a, b).any(|((a_key, a), (b_key, b))| {
            a_key != b_key || a.definition != b.definition || scopes(a) != scopes(b)
        })
}

/// What every URI of the template begins with.
fn literal(template: &UriTemplate) -> &str {
    let text = template.as_str();
    text.split_once('{').map_or(text, |(literal, _)| literal)
}

impl Provider {
    fn new(
        spec: Arc<ProviderSpec>,
        digest: Vec<u8>,
        (alive, paused): (bool, bool),
    ) -> Result<Self, String> {
        let job = ToolSpec {
            version: spec.version,
            policy: spec.policy.clone(),
            ..ToolSpec::new(Tool::new(spec.job(), &json!({ "type": "object" })))
        };
        let job = Entry::of_job(job, digest.clone(), paused)?;
        Ok(Self {
            spec,
            digest,
            alive,
            job: Arc::new(job),
        })
    }
}

#[cfg(test)]
mod tests {
    use protocol::resources::{Resource, ResourceTemplate};
    use store::Resources;

    use super::*;

    fn entry(name: &str, digest: u8, change: impl FnOnce(&mut ProviderSpec)) -> ProviderEntry {
        let mut spec = ProviderSpec::new(name);
        change(&mut spec);
        ProviderEntry {
            name: name.to_owned(),
            spec: Some(spec),
            digest: vec![digest],
            alive: true,
            paused: false,
        }
    }

    fn resources(uris: &[&str], templates: &[&str], prefixes: &[&str]) -> Option<Resources> {
        Some(Resources {
            list: uris.iter().map(|uri| Resource::new(*uri, "r")).collect(),
            templates: templates
                .iter()
                .map(|text| ResourceTemplate::new(*text, "t"))
                .collect(),
            prefixes: prefixes.iter().map(|text| (*text).to_owned()).collect(),
            subscribe: false,
        })
    }

    fn whose(provided: &Provided, uri: &str) -> Option<String> {
        provided.resource(uri).map(|found| found.spec.name.clone())
    }

    #[test]
    fn a_uri_belongs_to_who_says_most_of_it() {
        let provided = Arc::new(Provided::default()).updated(vec![
            entry("a", 1, |spec| {
                spec.resources = resources(&["x://1"], &["{+any}"], &["x+"]);
            }),
            entry("b", 2, |spec| {
                spec.resources = resources(&["x://1"], &["x://t/{id}"], &["x+y://"]);
            }),
        ]);
        let found = |uri| whose(&provided, uri);
        assert_eq!(found("x://1").as_deref(), Some("a"), "the first by name");
        assert_eq!(found("x://t/9").as_deref(), Some("b"));
        assert_eq!(found("x+z://9").as_deref(), Some("a"));
        assert_eq!(found("x+y://9").as_deref(), Some("b"));
        assert_eq!(
            found("z://9").as_deref(),
            Some("a"),
            "its template takes all"
        );
        assert_eq!(found(""), None);
    }

    #[test]
    fn what_is_served_is_advertised_and_changes_of_lists_are_seen() {
        let none = Arc::new(Provided::default());
        assert_eq!(none.serves, discover::Provided::default());
        let prompts = entry("a", 1, |spec| spec.prompts = Some(Vec::new()));
        let one = none.updated(vec![prompts.clone()]);
        assert!(one.serves.prompts && !one.serves.resources && !one.serves.completions);
        assert_eq!((one.prompts_generation, one.resources_generation), (0, 0));
        let known = ProviderEntry {
            spec: None,
            ..prompts.clone()
        };
        assert!(Arc::ptr_eq(&one, &one.updated(vec![known.clone()])));
        // Dead is not gone: what it lists stays listed.
        let dead = one.updated(vec![ProviderEntry {
            alive: false,
            ..known
        }]);
        assert!(dead.serves.prompts && dead.prompts_generation == 0);
        let more = one.updated(vec![entry("a", 2, |spec| {
            spec.prompts = Some(vec![Prompt::new("p")]);
            spec.resources = resources(&[], &["x://{id}"], &[]);
        })]);
        assert_eq!((more.prompts_generation, more.resources_generation), (1, 1));
        let gone = more.updated(Vec::new());
        assert_eq!((gone.prompts_generation, gone.resources_generation), (2, 2));
        assert_eq!(gone.serves, discover::Provided::default());
    }
}
