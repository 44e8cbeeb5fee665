package tensor

// Ignored returns the label that is excluded from the loss.
func (o CrossEntropyOptions) Ignored() int { return o.ignore() }

// Divisor returns the number by which the sum of the labels' losses is divided.
func (o CrossEntropyOptions) Divisor(labels []int) float64 { return o.divisor(labels) }
