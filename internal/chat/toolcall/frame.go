package toolcall

import "strings"

// A Frame describes the parts of an answer around its content, so that a grammar can constrain the
// content.
type Frame struct {
	// Inside is the marker that ends the reasoning in which the answer starts, or "" if it does not
	// start in reasoning.
	Inside string
	// Open and Close are the markers of reasoning that the answer may start with, or "".
	Open, Close string
	// Over means that the prompt has already ended the reasoning, as in templates with reasoning
	// turned off.
	Over bool
	// Final precedes the content. Next precedes Final after reasoning.
	Final, Next string
}

// Frame returns the frame of one answer.
func (f *Family) Frame(o Options) Frame {
	var out Frame
	if f.spec.name == harmony.name {
		out.Final, out.Next = harmonyFinal, harmonyNext
	}
	if len(f.thinks) == 0 {
		return out
	}
	out.Open, out.Close = f.thinks[0].open, f.thinks[0].close
	if o.InReasoning {
		out.Inside = f.thinks[0].close
		return out
	}
	prompt := strings.TrimRight(o.Prompt, " \t\r\n")
	for _, t := range f.thinks {
		if strings.HasSuffix(prompt, t.open) {
			out.Inside = t.close
			break
		}
		out.Over = out.Over || strings.HasSuffix(prompt, t.close)
	}
	return out
}
