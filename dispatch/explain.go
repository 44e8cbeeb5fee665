package dispatch

import "fmt"

// Explain adds a cause to err, the error of logits that are not finite. The cause is a quantised
// weight whose scale is not finite, if there is one. Explain reads the scales of all quantised
// weights.
func (m *Model) Explain(err error) error {
	if cause := m.binding.CheckScales(); cause != nil {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
