package meta

// The specs of layers that have a state for each sequence instead of keys and values. They stand
// where a block has its attention. State is the index of the layer's state.

// ShortConvSpec runs a gated short convolution: with b, c, x = the thirds of In's result, the layer
// is Out(c · conv(b · x)).
type ShortConvSpec struct {
	State   int
	In, Out string // Linear
	Conv    string // child with weight [Width, 1, Kernel] and maybe bias [Width]
	Width   int
	Kernel  int // tokens
}

// DeltaNetSpec runs a gated delta net. Queries, keys and values pass a short convolution and SiLU
// together; the rule of the recurrence is in internal/backend. The result of each value head passes
// Norm, is multiplied by SiLU of its z, and goes through Out.
type DeltaNetSpec struct {
	State                int
	KeyHeads, ValueHeads int // each key head serves ValueHeads/KeyHeads value heads
	KeyDim, ValueDim     int
	Kernel               int    // tokens that the convolution sees
	QKV, Z, B, A         string // Linear; QKV has all queries, then all keys, then all values
	FusedQKVZ, FusedBA   string // Linear instead of these; for each key head its q, k, v and z, or its b and a
	Conv                 string // child with weight [queries + keys + values, 1, Kernel]
	ALog, DTBias         string // Params of one number for each value head
	Norm, Out            string
}
