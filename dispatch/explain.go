package dispatch

import "fmt"

// Explain adds a cause to err, the error of logits that are not finite: a quantised weight whose
// scale is not finite, if there is one. It reads the scales of all quantised weights.
func (m *Model) Explain(err error) error {
	if cause := m.binding.CheckScales(); cause != nil {
		return fmt.Errorf("%w: %w", err, cause)
	}
	return err
}
