// Package responses implements the Responses API, /v1/responses, of the Open Responses
// specification and OpenAI's clients.
//
// A request is decoded into a [generate.Conversation] (items.go, tools.go) and a response without
// output (resource.go). The model's answer becomes steps: pieces of reasoning, text and calls. A
// builder (builder.go) makes output items and the events of a stream from the steps. A stored
// response that is retrieved as a stream is rebuilt from the same steps, so that its events have
// the same sequence numbers.
//
// Responses are stored in a [store.Store], each with its own input items and the id of the
// preceding response (record.go). Following these ids yields the conversation. Ids of items contain
// the id of their response, so that an item_reference needs no index.
//
// The package does not depend on routes or on the internals of models. Errors have OpenAI's form.
package responses
