package redact

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// alnum gives n letters and digits.
func alnum(n int) string {
	const letters = "a1B2c3D4e5F6g7H8i9J0"
	return strings.Repeat(letters, n/len(letters)+1)[:n]
}

var mask = regexp.MustCompile(`…\[\d+\]`)

func TestSecrets(t *testing.T) {
	pem := "-----BEGIN RSA PRIVATE KEY-----\n" + alnum(64) + "\n" + alnum(40) + "==\n-----END RSA PRIVATE KEY-----\n"
	for _, tt := range []struct{ name, in, want string }{
		{"an OpenAI key", "export OPENAI=sk-" + alnum(45), "export OPENAI=sk-a…[48]"},
		{"an Anthropic key", "x-api-key: sk-ant-api03-" + alnum(80), "x-api-key: sk-a…[93]"},
		{"a GitHub token", "git clone https://ghp_" + alnum(36) + "@github.com/a/b", "git clone https://ghp_…[40]@github.com/a/b"},
		{"a fine-grained GitHub token", "github_pat_" + alnum(60), "gith…[71]"},
		{"an AWS key id", "AKIA" + strings.Repeat("Q7", 8), "AKIA…[20]"},
		{"a Slack token", "xoxb-123456789012-" + alnum(24), "xoxb…[42]"},
		{"a GitLab token", "'glpat-" + alnum(20) + "'", "'glpa…[26]'"},
		{"a Google key", "AIza" + alnum(35), "AIza…[39]"},
		{"a web token", "eyJhbGciOiJI." + alnum(20) + "." + alnum(10) + " next", "eyJh…[44] next"},
		{"a web token without signature", "eyJhbGciOiJI." + alnum(20) + ".", "eyJh…[34]"},
		{"a bearer credential", `curl -H "Authorization: Bearer ` + alnum(30) + `" url`, `curl -H "Authorization: Bearer a1B2…[30]" url`},
		{"a bearer web token", "bearer eyJhbGciOiJI." + alnum(20) + "." + alnum(10), "bearer eyJh…[44]"},
		{"basic credentials", "Authorization: Basic dXNlcjpodW50ZXIy", "Authorization: Basic dXNl…[16]"},
		{"a password assignment", "PGPASSWORD=hunter2 psql", "PGPASSWORD=h…[7] psql"},
		{"a quoted password", `password = "hunter2";`, `password = "h…[7]";`},
		{"a password in JSON", `{"password":"hunter2","user":"ann"}`, `{"password":"h…[7]","user":"ann"}`},
		{"a password in JSON in JSON", `{"command":"echo {\"db_password\": \"hunter2\"}"}`, `{"command":"echo {\"db_password\": \"h…[7]\"}"}`},
		{"a flag with an equals sign", "mysql --password=hunter2", "mysql --password=h…[7]"},
		{"a flag with a space", "tool --api-key hunter22 run", "tool --api-key h…[8] run"},
		{"a key behind a name shows what it is", "token: ghp_" + alnum(36), "token: ghp_…[40]"},
		{"userinfo", "psql postgres://ann:hunter2@db/x", "psql postgres://ann:h…[7]@db/x"},
		{"a private key", pem, "-----BEGIN RSA PRIVATE KEY-----\n…[64]\n…[42]\n-----END RSA PRIVATE KEY-----\n"},
		{"a private key in JSON", `{"k":"-----BEGIN PRIVATE KEY-----\n` + alnum(64) + `\n-----END PRIVATE KEY-----\nls -la"}`,
			`{"k":"-----BEGIN PRIVATE KEY-----\n…[64]\n-----END PRIVATE KEY-----\nls -la"}`},
		{"callgate's own control token", "approve with CALLGATE_CONTROL_TOKEN=cg_" + strings.Repeat("QX7", 8) + "AB now", "approve with CALLGATE_CONTROL_TOKEN=cg_Q…[29] now"},
		{"a control token alone", "cg_" + strings.Repeat("QX7", 8) + "AB", "cg_Q…[29]"},
		{"an agent's token", "ANTHROPIC_API_KEY=cgt_" + strings.Repeat("QX7", 8) + "AB claude", "ANTHROPIC_API_KEY=cgt_…[30] claude"},
		{"an agent's token in a base URL", "http://127.0.0.1:4141/~cgt_" + strings.Repeat("QX7", 8) + "AB/v1", "http://127.0.0.1:4141/~cgt_…[30]/v1"},
		{"one that callgate did not make", "curl https://gate.example/~" + alnum(22) + "/openai/v1/models", "curl https://gate.example/~a1B2…[22]/openai/v1/models"},
		{"one behind a host without a scheme", "127.0.0.1:4141/~" + alnum(22), "127.0.0.1:4141/~a1B2…[22]"},
		{"one in a path alone", "GET /~" + alnum(30) + "/v1/messages", "GET /~a1B2…[30]/v1/messages"},
		{"one with joining characters", `{"url":"http://[::1]:4141/~ab.cd-ef_gh~ij.kl-mn_op~qr/x"}`, `{"url":"http://[::1]:4141/~ab.c…[26]/x"}`},
		{"an agent's token in a proxy's URL", "HTTPS_PROXY=http://agent:cgt_" + strings.Repeat("QX7", 8) + "AB@127.0.0.1:4141", "HTTPS_PROXY=http://agent:c…[30]@127.0.0.1:4141"},
		{"an agent's token as a proxy's user", "http://cgt_" + strings.Repeat("QX7", 8) + "AB@127.0.0.1:4141", "http://cgt_…[30]@127.0.0.1:4141"},
		{"a key in a query", "https://h.example/v1beta/models/m:generateContent?alt=sse&key=" + alnum(20), "https://h.example/v1beta/models/m:generateContent?alt=sse&key=a…[20]"},
		{"a key alone in a query", "GET /v1beta/models?Key=" + alnum(20) + "&x=1", "GET /v1beta/models?Key=a…[20]&x=1"},
		{"a key of Google's in a header", "X-Goog-Api-Key: " + alnum(20), "X-Goog-Api-Key: a…[20]"},
		{"two keys in one line", "sk-" + alnum(20) + ";sk-" + alnum(21), "sk-a…[23];sk-a…[24]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Secrets(tt.in); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestNoSecrets(t *testing.T) {
	for _, s := range []string{
		"",
		"ls -la /tmp && rm -rf build",
		"sk-learn is a library",
		"cg_create_variable()",
		"cgt_create_variable()",
		"echo sk-",
		"rm -rf /home/dev/~backup-2026-11-of-everything",
		"https://people.example/~alice/index.html",
		"ls ~/a-directory-with-a-long-name-2026",
		"git commit -m 'rotate the token'",
		"max_tokens: 4096",
		"password=$PASSWORD",
		"password=$(cat /run/secret)",
		"token=`cat x`",
		"--password -x",
		"--secret=/etc/shadow",
		"--secret ./key.pem",
		"cat password.txt",
		"the bearer of good news",
		"basic understanding of things",
		"https://example.com:8443/path@2",
		"ssh://git@host/x",
		"http://a:@b",
		"a:b@c",
		"-----BEGIN CERTIFICATE-----\n" + alnum(64) + "\n-----END CERTIFICATE-----",
		"sha256:" + strings.Repeat("0a", 32),
		"3f786850e387550fdab836ed7e6dc881de23001b",
		"eyJ.not.one",
		"token",
		"token=",
		"token: ",
		"--token",
		"--token ",
		"secret='",
		"password=abc",
		"://",
		"-----",
	} {
		if got := Secrets(s); got != s {
			t.Errorf("%q became %q", s, got)
		}
	}
}

// A payload must not hide behind what looks like a secret.
func TestMaskingHidesNoShellSyntax(t *testing.T) {
	for _, tt := range []struct{ in, keeps string }{
		{"token=abcd;rm -rf /", ";rm -rf /"},
		{"password=aaaa$(rm -rf /)", "$(rm -rf /)"},
		{"Bearer " + alnum(20) + "`reboot`", "`reboot`"},
		{"sk-" + alnum(20) + "|sh", "|sh"},
		{"sk-" + alnum(20) + ">/etc/passwd", ">/etc/passwd"},
		{"-----BEGIN PRIVATE KEY-----\nrm -rf /; $(reboot)", ";"},
		{"http://a:b$(reboot)@c", "$(reboot)"},
		{"secret=abcd\nreboot", "\nreboot"},
		{"secret=abcd\\\nreboot", "\\\nreboot"},
	} {
		if got := Secrets(tt.in); !strings.Contains(got, tt.keeps) {
			t.Errorf("%q became %q", tt.in, got)
		}
	}
}

const meta = " \t\n\r\"'`$&|;<>(){}*?!#\\@^"

// kept is what must stand in a masked text as it stood before.
func kept(s string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(meta, r) {
			return r
		}
		return -1
	}, mask.ReplaceAllString(s, ""))
}

func FuzzSecrets(f *testing.F) {
	for _, s := range []string{
		"sk-" + alnum(30), "password=hunter2", `{"token":"` + alnum(30) + `"}`, "Bearer " + alnum(20), "a://b:cdef@g",
		"-----BEGIN PRIVATE KEY-----\n" + alnum(64) + "\n-----END PRIVATE KEY-----", "token=h…[7]", "…[12]…[", "token: token: abcd",
		"eyJhbGciOiJI." + alnum(20) + "." + alnum(10), "--token  Bearer  " + alnum(12), "a://b:c…[3]@d", "\xff\xfe password=\xffabc",
		"-----BEGIN PRIVATE KEY-----sk-" + alnum(30), "http://h/~" + alnum(30) + "/~" + alnum(30), "/~" + alnum(22), "a:1/~" + alnum(22) + "…[3]",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Secrets(s)
		if a, b := kept(s), kept(got); a != b {
			t.Fatalf("%q became %q: of %q %q was kept", s, got, a, b)
		}
		if again := Secrets(got); again != got {
			t.Fatalf("%q became %q, then %q", s, got, again)
		}
	})
}

func TestVisible(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"plain text", `echo "a\nb" | cat`, `echo "a\nb" | cat`},
		{"backslashes", `printf 'a\tb\x00\\' | sed 's/\./\n/'`, `printf 'a\tb\x00\\' | sed 's/\./\n/'`},
		{"redirections", "cat <in >out <<EOF; diff <(a) <(b)", "cat <in >out <<EOF; diff <(a) <(b)"},
		{"letters of any script", "päper 日本 ½ é", "päper 日本 ½ é"},
		{"line breaks and tabs", "a\nb\rc\td", "a␊b␍c␉d"},
		{"a tab is not what stands for one in a string", "\t" + `\t`, `␉\t`},
		{"terminal escapes", "a\x1b[2Jb\x07\x00\x7f", "a␛[2Jb␇␀␡"},
		{"C1 controls", "a\u009b2Jb", "a<U+009B>2Jb"},
		{"bidirectional overrides", "rm \u202exslx\u202c \u2066a\u2069", "rm <U+202E>xslx<U+202C> <U+2066>a<U+2069>"},
		{"zero width", "l\u200bs\u200d\ufeff\u2060", "l<U+200B>s<U+200D><U+FEFF><U+2060>"},
		{"soft hyphen", "a\u00adb", "a<U+00AD>b"},
		{"other blanks", "a\u00a0b\u3000c\u2003d\u2800e\u3164f", "a<U+00A0>b<U+3000>c<U+2003>d<U+2800>e<U+3164>f"},
		{"line separators", "a\u2028b\u2029c", "a<U+2028>b<U+2029>c"},
		{"variation selectors", "a\ufe0fb\U000e0100c", "a<U+FE0F>b<U+E0100>c"},
		{"tags", "a\U000e0041b", "a<U+E0041>b"},
		{"private and unassigned", "a\ue000b\U0010fffec", "a<U+E000>b<U+10FFFE>c"},
		{"bytes that are not text", "a\xffb\xc3", "a<byte FF>b<byte C3>"},
		{"a real replacement character", "a\ufffdb", "a\ufffdb"},
		{"a typed picture", "a␉b␡", "a<U+2409>b<U+2421>"},
		{"pictures of nothing that is escaped", "␠␢␤", "␠␢␤"},
		{"a typed sign", "<U+202E> <byte FF> <u+202e> <U-1>", "<U+003C>U+202E> <U+003C>byte FF> <u+202e> <U-1>"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Visible(tt.in); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// unseen undoes Visible.
func unseen(t *testing.T, s string) string {
	t.Helper()
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case pictured(r) && r == pictureOfDelete:
			b.WriteByte(0x7f)
		case pictured(r):
			b.WriteByte(byte(r - pictures))
		case sign(s):
			body, rest, ok := strings.Cut(s, ">")
			_, digits, isByte := strings.Cut(body, "<byte ")
			if !isByte {
				digits = strings.TrimPrefix(body, "<U+")
			}
			v, err := strconv.ParseUint(digits, 16, 32)
			if !ok || err != nil {
				t.Fatalf("%q is no sign", s)
			}
			if s = rest; isByte {
				b.WriteByte(byte(v))
			} else {
				b.WriteRune(rune(v))
			}
			continue
		default:
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

func FuzzVisible(f *testing.F) {
	for _, s := range []string{"plain", "a\n\x1b", "\u202e\U000e0041", "\xff\xc3\x28", "<U+202E>", "<<byte FF>\x7f␡", `\t` + "\t␉", "<U+\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Visible(s)
		for i, r := range got {
			if hidden(r) {
				t.Fatalf("%q still holds %U at %d", got, r, i)
			}
		}
		if back := unseen(t, got); back != s {
			t.Fatalf("%q became %q, which reads as %q", s, got, back)
		}
	})
}

func BenchmarkSecrets(b *testing.B) {
	for name, s := range map[string]string{
		"command": `{"command":"go test ./internal/parser/ -run TestRoundTrip -count=1"}`,
		"file16k": strings.Repeat("func (p *parser) next() (token, error) { return p.items[p.at], nil }\n", 240),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(s)))
			b.ReportAllocs()
			for b.Loop() {
				Secrets(s)
			}
		})
	}
}
