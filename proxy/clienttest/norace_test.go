//go:build !race

package clienttest

// raced says that the race detector is on, which makes all of it slow.
const raced = false
