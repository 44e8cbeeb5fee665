package dispatch

import "fmt"

// Explain returns err, the error of logits that are not finite, with the scale of a weight that is not finite, if
// there is one. It reads the scales of all quantised weights.
func (m *Model) Explain(err error) error {
	if cause := m.binding.CheckScales(); cause != nil {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
