package meta

// NGramSpec adds table entries of the n-grams that end with each token to the streams of a block,
// before its branches, as in transformers' Qwen4ExpTextPLELayer. Each n-gram of 2 to Size tokens
// has Heads rows of the table. With id[0] = the token, and id[s] = the token s positions earlier,
// or End before the start of the sequence and up to the last earlier token End, row h of the
// n-grams of n tokens is
//
//	(id[0]·multiplier[0] xor … xor id[n-1]·multiplier[n-1]) mod size[j] + offset[j], where j = (n-2)·Heads + h
//
// in 64-bit integers, where mod is never negative. With e = all rows of a token, concatenated,
// and for each stream x[k] of Streams, with as many channels as Value's result:
//
//	d[k] = KeyNorm(Key(e))[k] · QueryNorm(x)[k] / √channels;  v[k] = sigmoid(sign(d[k])·√max(|d[k]|, 1e-6)) · Value(e)
//	x'[k] = x[k] + v[k] + silu(convolution of ConvNorm(v)[k])
//
// The convolution has Kernel taps that are Size tokens apart. Names are dotted paths to children.
// State is the index of the layer's state, from 0: the last Size-1 tokens, and the last
// (Kernel-1)·Size inputs of the convolution.
type NGramSpec struct {
	State                        int
	Size, Heads, Kernel, Streams int
	End                          int
	Vocab                        int    // tokens are less than it
	Table                        string // Embedding
	// Hashes is a child with the Buffers Multipliers [Size], Sizes and Offsets [(Size-1)·Heads], of integers.
	Hashes, Multipliers, Sizes, Offsets string
	Key, Value                          string // Linears [Streams·channels, all rows] and [channels, all rows]
	KeyNorm, QueryNorm, ConvNorm        string // norms of each stream, with weights of their own
	Conv                                string // child with weight [Streams·channels, 1, Kernel]
}
