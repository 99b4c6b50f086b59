//! Decides from history, ledger and final reads whether a promise was broken.
