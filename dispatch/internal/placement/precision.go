package placement

// Precision selects the arithmetic of activations.
type Precision uint8

// The precisions.
const (
	// PrecisionAuto may round activations and the KV cache to the weights' dtype. Prompt tokens
	// and generated tokens have different orders of summation.
	PrecisionAuto Precision = iota
	// PrecisionHigh keeps activations, sums and the KV cache in float32, with the same order of
	// summation for all tokens.
	PrecisionHigh
)
