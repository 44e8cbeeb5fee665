package text_test

import (
	"encoding/json"
	"fmt"
	"log"

	"github.com/heftai/heft/loader/demo"
	"github.com/heftai/heft/text"
)

// A model's folder is opened with text.Open; the demo model is embedded.
func ExampleOpenFS() {
	tokenizer, chat, err := text.OpenFS(demo.Name, demo.Files())
	if err != nil {
		log.Fatal(err)
	}
	prompt, err := chat.Render(text.Conversation{
		Messages:            []text.Message{text.System("Answer briefly."), text.User("Who are you?")},
		AddGenerationPrompt: true,
	})
	if err != nil {
		log.Fatal(err)
	}
	ids, err := tokenizer.Encode(prompt, text.EncodeOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(prompt)
	fmt.Println(len(ids), "tokens")
	// Output:
	// <|bos|><|system|>Answer briefly.<|end|><|user|>Who are you?<|end|><|assistant|>
	// 19 tokens
}

func ExampleTokenizer_Encode() {
	tokenizer, _, err := text.OpenFS(demo.Name, demo.Files())
	if err != nil {
		log.Fatal(err)
	}
	ids, err := tokenizer.Encode("The weights stay on the disk.", text.EncodeOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range ids {
		fmt.Printf("%q ", tokenizer.Decode([]int32{id}, false))
	}
	fmt.Println()
	// Output:
	// "The" " weights" " st" "ay" " on" " the" " disk" "."
}

func ExampleTokenizer_NewDecoder() {
	tokenizer, _, err := text.OpenFS(demo.Name, demo.Files())
	if err != nil {
		log.Fatal(err)
	}
	ids, err := tokenizer.Encode("Grüße", text.EncodeOptions{})
	if err != nil {
		log.Fatal(err)
	}
	decoder := tokenizer.NewDecoder(true)
	for _, id := range ids {
		if s, ok, err := decoder.Next(id); err == nil && ok {
			fmt.Printf("%q ", s)
		}
	}
	fmt.Printf("%q\n", decoder.Flush())
	// Output:
	// "G" "r" "ü" "ß" "e" ""
}

func ExampleMessage_UnmarshalJSON() {
	var m text.Message
	if err := json.Unmarshal([]byte(`{"role":"assistant","content":null,"tool_calls":[
		{"id":"c1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Rome\"}"}}]}`), &m); err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.Role, m.ToolCalls[0].Name, m.ToolCalls[0].Arguments)
	// Output:
	// assistant weather {"city":"Rome"}
}

func ExampleChat_Parse() {
	_, chat, err := text.OpenFS(demo.Name, demo.Files())
	if err != nil {
		log.Fatal(err)
	}
	if chat, err = chat.WithParsers("hermes", ""); err != nil { // usually the template tells
		log.Fatal(err)
	}
	weather := text.Tool{Name: "weather", Parameters: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}}}`)}
	answer := chat.Parse("I look it up.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>",
		text.ParseOptions{Tools: []text.Tool{weather}})
	fmt.Println(answer.Content)
	fmt.Println(answer.ToolCalls[0].Name, answer.ToolCalls[0].Arguments)
	// Output:
	// I look it up.
	// weather {"city": "Rome"}
}
