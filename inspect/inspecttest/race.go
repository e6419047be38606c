//go:build race

package inspecttest

// splitStride is how far apart the splits are. The race detector makes each run
// ten times as dear and has nothing to find in one more split.
const splitStride = 5
