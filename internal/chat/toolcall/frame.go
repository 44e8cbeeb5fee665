package toolcall

import "strings"

// A Frame says what an answer has around its content, so that the content can be constrained.
type Frame struct {
	// Inside is the marker that ends the reasoning in which the answer begins; "" if it does not
	// begin in reasoning.
	Inside string
	// Open and Close are the markers of reasoning that the answer may begin with; "" if there is
	// none.
	Open, Close string
	// Over says that the prompt has ended the reasoning already, as templates do whose reasoning is turned off.
	Over bool
	// Final stands before the content, and Next before that after reasoning.
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
