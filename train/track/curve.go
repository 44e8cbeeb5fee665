package track

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/heftai/heft/internal/atomicfile"
)

// Curve collects numbers by name and draws them to a PNG file, at intervals during the run and at
// its end.
type Curve struct {
	path   string
	names  []string
	curves []Series
	drawn  time.Time
	// Every is the minimum time between two drawings. 0 means ten seconds.
	Every time.Duration
	// Plot configures the drawing.
	Plot Plot
}

var _ Tracker = (*Curve)(nil)

// NewCurve makes a curve of the given names, or of all names without any. It draws to the file path
// and creates its folder.
func NewCurve(path string, names ...string) (*Curve, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("track: %w", err)
	}
	return &Curve{path: path, names: names, Plot: Plot{Title: "loss", XLabel: "step"}}, nil
}

// Name returns the name of the tracker.
func (c *Curve) Name() string { return "curve" }

// Configure checks the settings and records nothing.
func (c *Curve) Configure(settings Values) error { return check(settings) }

// Log adds the values of a step to their curves.
func (c *Curve) Log(values Values, step int) error {
	if err := check(values); err != nil {
		return err
	}
	for name, v := range flatten(values) {
		y, ok := number(v)
		if !ok || len(c.names) > 0 && !slices.Contains(c.names, name) {
			continue
		}
		i := slices.IndexFunc(c.curves, func(s Series) bool { return s.Name == name })
		if i < 0 {
			i = len(c.curves)
			c.curves = append(c.curves, Series{Name: name})
		}
		s := &c.curves[i]
		s.X, s.Y = append(s.X, float64(step)), append(s.Y, y)
	}
	every := c.Every
	if every == 0 {
		every = 10 * time.Second
	}
	if now := time.Now(); now.Sub(c.drawn) > every {
		c.drawn = now
		return c.draw()
	}
	return nil
}

// Curves returns the collected numbers, sorted by name.
func (c *Curve) Curves() []Series {
	slices.SortFunc(c.curves, func(a, b Series) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return c.curves
}

// WriteText draws the collected numbers to a terminal.
func (c *Curve) WriteText(w io.Writer) error {
	p := c.Plot
	p.Width, p.Height = 0, 0
	return DrawText(w, p, c.Curves()...)
}

// draw replaces the file.
func (c *Curve) draw() error {
	var b bytes.Buffer
	if err := DrawPNG(&b, c.Plot, c.Curves()...); err != nil {
		return err
	}
	if err := atomicfile.WriteFile(c.path, b.Bytes()); err != nil {
		return fmt.Errorf("track: %w", err)
	}
	return nil
}

// Close draws the final state.
func (c *Curve) Close() error { return c.draw() }
