// Package placement tests that the placement of a model and the chunking of a prompt do not
// change a bit of an answer. It uses all golden models, random shapes and formats, random
// decisions about what stays in memory, and several numbers of threads.
package placement
