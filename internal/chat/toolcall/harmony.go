package toolcall

// harmony is the format of gpt-oss: messages, each with a channel and perhaps a
// recipient, that follow each other in one answer.
//
//	<|channel|>analysis<|message|>…<|end|>
//	<|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>
//	<|start|>assistant<|channel|>final<|message|>…<|return|>
//
// The recipient may also come before the channel. A commentary without a recipient is
// content. The prompt ends inside the first message's header.
var harmony = spec{
	name: "harmony",
	all:  [][]string{{"<|channel|>", "<|message|>", "<|start|>"}},
	thinks: []think{{
		open: "<|channel|>analysis<|message|>", close: "<|end|>",
		implied: []string{"<|start|>", "<|return|>", "<|call|>"},
	}},
	forms: []form{
		harmonyCall("<|channel|>commentary to="),
		harmonyCall("<|channel|>analysis to="),
		harmonyCall("<|start|>assistant to="),
	},
	drops: []string{
		harmonyNext, harmonyFinal, "<|channel|>commentary<|message|>",
		"<|channel|>final <|constrain|>json<|message|>", "<|end|>", "<|return|>", "<|call|>",
	},
	seeds: []string{harmonyNext},
}

// The text before the final answer, and before each message after the first.
const (
	harmonyFinal = "<|channel|>final<|message|>"
	harmonyNext  = "<|start|>assistant"
)

func harmonyCall(open string) form {
	return form{open: open, head: []field{{kind: recipientField, until: "<|message|>"}}, end: "<|call|>"}
}
