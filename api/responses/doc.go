// Package responses is the Responses API: /v1/responses as the Open Responses specification and OpenAI's
// clients have it.
//
// A request is decoded into a [generate.Conversation] (items.go, tools.go) and a response that is filled in
// (resource.go). The model's answer becomes steps: pieces of reasoning, text and calls. A builder (builder.go)
// makes output items of the steps, and the events of a stream. A response that is read again as a stream is
// built again from the same steps, so that its events have the same sequence numbers.
//
// Responses are kept in a [store.Store], each with its own input items and the id of the response before it
// (record.go). A conversation is put together by following these ids. Ids of items contain the id of their
// response, so that an item_reference needs no index.
//
// The package knows no routes and no model internals. Errors have OpenAI's shape.
package responses
