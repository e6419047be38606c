//go:build !race

package inspecttest

// splitStride is how far apart the splits are: every byte is one.
const splitStride = 1
