// Package conversation holds tests alone: generated conversations of agents
// that keep, trim, encode, cut and fork their histories as real ones do, run
// through the real proxy and gate against a provider that is as strict as the
// real ones. What is asserted is what agent and provider see over HTTP.
package conversation
