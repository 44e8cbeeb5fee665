package tensor

// Ignored is the label that counts for nothing.
func (o CrossEntropyOptions) Ignored() int { return o.ignore() }

// Divisor is what the sum of the losses of labels is divided by.
func (o CrossEntropyOptions) Divisor(labels []int) float64 { return o.divisor(labels) }
