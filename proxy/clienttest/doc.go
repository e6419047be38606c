// Package clienttest holds tests alone: the official SDKs run their agent loops
// through the real proxy, gate, detector and store against a provider that is
// as strict as the real ones. It stands apart from package proxy so that the
// SDKs are not built with that package's other tests.
package clienttest
