package cmdline

import (
	"bytes"
	"strings"
	"testing"
)

type grammar struct {
	Count  countCmd `cmd:"" help:"Count."`
	Colour struct{} `cmd:"" help:"Show colours."`
}

type countCmd struct {
	N     int     `help:"Count to N."`
	Rate  float64 `help:"Count so many per second."`
	Shape string  `help:"Draw this shape." enum:"circle,square" default:"circle"`
}

// TestUsageErrorsSayWhatTheyGotAndWant: kong's messages become "got X, want Y", and name the command
// whose help lists the flags.
func TestUsageErrorsSayWhatTheyGotAndWant(t *testing.T) {
	for args, want := range map[string]string{
		"":                     "p: a command is missing, want one of count, colour (see p --help)",
		"zzz":                  `p: unknown command "zzz", want one of count, colour`,
		"cont":                 `p: unknown command "cont", did you mean "count"?`,
		"count --n x":          `p: --n: got "x", want a whole number (see p count --help)`,
		"count --rate x":       `p: --rate: got "x", want a float (see p count --help)`,
		"count --shape x":      `p: --shape: got "x", want one of circle, square (see p count --help)`,
		"colour blue":          `p: got the argument "blue", want none (see p colour --help)`,
		"count --width 3":      "p: unknown flag --width (see p count --help)",
		"count --height=3 --n": "p: unknown flag --height: use --n",
	} {
		var out, errs bytes.Buffer
		p := Program{Name: "p", Grammar: new(grammar), Hints: map[string]string{"--height": "use --n"}}
		if status := p.Run(strings.Fields(args), &out, &errs); status != 2 {
			t.Errorf("p %s: status %d, want 2", args, status)
		}
		if got := strings.TrimSpace(errs.String()); !strings.HasSuffix(got, want) && got != want {
			t.Errorf("p %s: got %q, want %q", args, got, want)
		}
	}
}

// TestCount: one thread, two threads.
func TestCount(t *testing.T) {
	if got := Count(1, "thread") + ", " + Count(2, "thread"); got != "1 thread, 2 threads" {
		t.Errorf("got %q", got)
	}
}
