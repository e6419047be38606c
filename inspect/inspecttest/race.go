//go:build race

package inspecttest

// splitStride is how far apart the splits are, and by what the rounds of Mutate
// are divided. The race detector makes each run ten times as dear and has nothing
// to find in one more split.
const splitStride = 17
