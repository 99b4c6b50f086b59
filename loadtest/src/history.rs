//! What the clients did and saw, in the order of one clock.
