package toolcall

import (
	"strings"
	"testing"
)

// BenchmarkText is an answer in tokens of four bytes, without a marker.
func BenchmarkText(b *testing.B) {
	text := strings.Repeat("The answer, as <b>far</b> as {we} know, is 42.\nNext ", 100)
	benchmark(b, "hermes", text)
}

// BenchmarkCall is a call with long arguments.
func BenchmarkCall(b *testing.B) {
	for family, text := range map[string]string{
		"hermes":     `<tool_call>{"name": "f", "arguments": {"s": "` + strings.Repeat("some text ", 500) + `"}}</tool_call>`,
		"qwen-coder": "<tool_call><function=f><parameter=s>" + strings.Repeat("some text ", 500) + "</parameter></function></tool_call>",
		"lfm2":       `<|tool_call_start|>[f(s="` + strings.Repeat("some text ", 500) + `")]<|tool_call_end|>`,
	} {
		b.Run(family, func(b *testing.B) { benchmark(b, family, text) })
	}
}

func benchmark(b *testing.B, name, text string) {
	family := byName(b, name)
	o := Options{Tools: testTools(b)}
	var pieces []string
	for i := 0; i < len(text); i += 4 {
		pieces = append(pieces, text[i:min(i+4, len(text))])
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		p := family.NewParser(o)
		for _, piece := range pieces {
			p.Feed(piece)
		}
		p.Finish()
	}
}

// TestTextAllocatesNothing: plain text passes through.
func TestTextAllocatesNothing(t *testing.T) {
	p := byName(t, "hermes").NewParser(Options{Tools: testTools(t)})
	p.Feed("Begin")
	n := testing.AllocsPerRun(1000, func() {
		p.Feed(" word")
		p.Feed(", a\n")
		p.Feed("b < c;")
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
