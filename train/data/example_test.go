package data_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/text"
	"github.com/heftai/heft/train/data"
)

// A loader cuts a data set into batches. The last one is smaller.
func ExampleNewLoader() {
	loader, err := data.NewLoader(data.Slice[string]{"a", "b", "c", "d", "e"}, data.Samples[string], data.Options{BatchSize: 2})
	if err != nil {
		log.Fatal(err)
	}
	for batch, err := range loader.All(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(batch)
	}
	// Output:
	// [a b]
	// [c d]
	// [e]
}

// ReadJSONL reads records of text, of a prompt and its completion, or of messages.
func ExampleReadJSONL() {
	lines := strings.NewReader(`{"text": "Once upon a time"}
{"prompt": "2+2=", "completion": "4"}
`)
	for r, err := range data.ReadJSONL(lines) {
		if err != nil {
			log.Fatal(err)
		}
		if r.Text != nil {
			fmt.Printf("text %q\n", *r.Text)
		} else {
			fmt.Printf("prompt %q, completion %q\n", *r.Prompt, *r.Completion)
		}
	}
	// Output:
	// text "Once upon a time"
	// prompt "2+2=", completion "4"
}

// A conversation becomes ids and labels. Only the answer and its end are learned.
func ExampleTokenizer_TokenizeConversation() {
	tokenizer, err := data.OpenTokenizerFS(demo.Name, demo.Files())
	if err != nil {
		log.Fatal(err)
	}
	chat := text.Conversation{Messages: []text.Message{text.User("Who are you?"), text.Assistant("A parrot.")}}
	s, err := tokenizer.TokenizeConversation(chat, data.TextOptions{})
	if err != nil {
		log.Fatal(err)
	}
	var learned []int32
	for i, label := range s.Labels {
		if label != data.IgnoreLabel {
			learned = append(learned, s.IDs[i])
		}
	}
	fmt.Println(tokenizer.Decode(s.IDs))
	fmt.Println(tokenizer.Decode(learned))
	// Output:
	// <|bos|><|user|>Who are you?<|end|><|assistant|>A parrot.<|end|>
	// A parrot.<|end|>
}
