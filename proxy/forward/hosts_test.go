package forward

import (
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestHostsHaveOneSpelling(t *testing.T) {
	for _, c := range []struct{ in, port, want string }{
		{"api.openai.com:443", "", "api.openai.com:443"},
		{"API.OpenAI.com:443", "", "api.openai.com:443"},
		{"api.openai.com.:443", "", "api.openai.com:443"},
		{"api.openai.com", "443", "api.openai.com:443"},
		{"api.openai.com:8443", "443", "api.openai.com:8443"},
		{"127.0.0.1:80", "", "127.0.0.1:80"},
		{"[::1]:80", "", "[::1]:80"},
		{"[0:0:0:0:0:0:0:1]", "80", "[::1]:80"},
		{"[::ffff:127.0.0.1]:80", "", "127.0.0.1:80"},
		{"[::ffff:7f00:1]:80", "", "127.0.0.1:80"},
		{"a_b.example.com:443", "", "a_b.example.com:443"},
	} {
		e, reason := parseEndpoint(c.in, c.port)
		if reason != "" || e.String() != c.want {
			t.Errorf("%s: %s, %q", c.in, e, reason)
		}
	}
}

func TestHostsThatCanBeReadInTwoWaysAreRefused(t *testing.T) {
	for _, in := range []string{
		"", ":443", "api.openai.com", "api.openai.com:", "api.openai.com:0", "api.openai.com:65536", "api.openai.com:-1", "api.openai.com:+443", "api.openai.com:https",
		"user@api.openai.com:443", "api.openai.com/x:443", "api.openai.com%2f:443", "api openai.com:443", "api..openai.com:443", ".api.openai.com:443", "api.openai.com..:443",
		"äpi.openai.com:443", "api\u3002openai.com:443", "api.openai.com\x00:443", "*.openai.com:443",
		"2130706433:443", "017700000001:443", "0x7f000001:443", "0x7f.1:443", "127.1:443", "0177.0.0.1:443", "127.0.0.01:443", "1.2.3:443", "example.0x7f:443", "127.0.0.1.:443",
		"::1:443", "[::1:443", "::1]:443", "[fe80::1%eth0]:443", "[127.0.0.1]:443", "[api.openai.com]:443", "[]:443",
		strings.Repeat("a", 64) + ".com:443", strings.Repeat("a.", 127) + "com:443",
	} {
		if e, reason := parseEndpoint(in, ""); reason == "" {
			t.Errorf("%q was taken for %s", in, e)
		}
	}
}

func testMap(t *testing.T) hostMap {
	t.Helper()
	m, err := newHostMap([]Upstream{
		{"openai", parseURL(t, "https://api.openai.com")},
		{"az", parseURL(t, "https://Mine.OpenAI.Azure.com/openai")},
		{"azv1", parseURL(t, "https://mine.openai.azure.com/openai/v1/")},
		{"local", parseURL(t, "http://127.0.0.1:8000/v1")},
		{"name", parseURL(t, "http://localhost:9000")},
		{"umlaut", parseURL(t, "https://bücher.example")},
	}, []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:4141")}, []netip.AddrPort{netip.MustParseAddrPort("[::]:4142")})
	if err != nil {
		t.Fatal(err)
	}
	m.local = func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("192.168.7.7")} }
	return m
}

func TestWhatAHostIs(t *testing.T) {
	m := testMap(t)
	for _, c := range []struct {
		at   string
		want kind
	}{
		{"api.openai.com:443", kindGated},
		{"Api.OpenAI.com.:443", kindGated},
		{"mine.openai.azure.com:443", kindGated},
		{"127.0.0.1:8000", kindGated},
		{"[::ffff:127.0.0.1]:8000", kindGated},
		{"localhost:9000", kindGated},
		{"xn--bcher-kva.example:443", kindGated},

		{"api.openai.com:80", kindProvider},
		{"api.openai.com:8443", kindProvider},
		{"eu.api.openai.com:443", kindProvider},
		{"theirs.openai.azure.com:443", kindProvider},
		{"xn--bcher-kva.example:80", kindProvider},
		{"chatgpt.com:443", kindProvider},
		{"chatgpt.com:80", kindProvider},
		{"cloudcode-pa.googleapis.com:443", kindProvider},
		{"api.githubcopilot.com:443", kindProvider},
		{"api.individual.githubcopilot.com:443", kindProvider},
		{"generativelanguage.googleapis.com:443", kindProvider},
		{"bedrock-runtime.us-east-1.amazonaws.com:443", kindProvider},
		{"europe-west4-aiplatform.googleapis.com:443", kindProvider},
		{"openrouter.ai:443", kindProvider},
		{"api.anthropic.com:443", kindProvider},

		{"127.0.0.1:8001", kindOther},
		{"localhost:9001", kindOther},
		{"example.com:443", kindOther},
		{"openai.com:443", kindOther},
		{"evil-api.openai.com.example:443", kindOther},
		{"bedrock-runtime.a.b.amazonaws.com:443", kindOther},
		{"bedrock-runtime..amazonaws.com.example:443", kindOther},
		{"104.18.7.192:443", kindOther},

		{"127.0.0.1:4141", kindData},
		{"127.9.9.9:4141", kindData},
		{"localhost:4141", kindData},
		{"LOCALHOST:4141", kindData},
		{"x.localhost:4141", kindData},
		{"[::1]:4141", kindData},
		{"192.168.7.7:4141", kindData},
		{"192.168.7.8:4141", kindOther},
		{"127.0.0.1:4142", kindControl},
		{"0.0.0.0:4142", kindControl},
		{"[::]:4142", kindControl},
		{"[::ffff:127.0.0.1]:4142", kindControl},
		{"localhost:4142", kindControl},
		{"192.168.7.7:4142", kindControl},
	} {
		e, reason := parseEndpoint(c.at, "")
		if reason != "" {
			if c.want != kindOther {
				t.Errorf("%s: %s", c.at, reason)
			}
			continue
		}
		if got := m.kind(e); got != c.want {
			t.Errorf("%s is %d, want %d", c.at, got, c.want)
		}
	}
}

func TestCertificatesAreForGatedHostsAlone(t *testing.T) {
	m := testMap(t)
	if got, want := m.encrypted(), []string{"api.openai.com", "mine.openai.azure.com", "xn--bcher-kva.example"}; !slices.Equal(got, want) {
		t.Errorf("they are needed for %v, want %v", got, want)
	}
	for _, h := range []string{"chatgpt.com", "example.com", "eu.api.openai.com", "openai.com", ""} {
		if m.gatedHost(h) {
			t.Errorf("one may be issued for %q", h)
		}
	}
	need, later, err := Hosts([]Upstream{{"openai", parseURL(t, "https://api.openai.com")}})
	if err != nil || !slices.Equal(need, []string{"api.openai.com"}) || !slices.Contains(later, "openrouter.ai") || !slices.Contains(later, "openai.azure.com") {
		t.Errorf("%v, %v, %v", need, later, err)
	}
	for _, h := range later {
		if strings.Contains(h, "*") || !strings.Contains(h, ".") || h == "amazonaws.com" || h == "googleapis.com" {
			t.Errorf("the authority would be good for %s", h)
		}
	}
}

func TestPathsOfAGatedHostGoToTheUpstreamWithThatBase(t *testing.T) {
	m := testMap(t)
	for _, c := range []struct{ url, want string }{
		{"https://api.openai.com/v1/chat/completions?a=b%20c", "/openai/v1/chat/completions?a=b%20c"},
		{"https://api.openai.com/", "/openai/"},
		{"https://api.openai.com", "/openai/"},
		{"https://api.openai.com/a%2Fb", "/openai/a%2Fb"},
		{"https://api.openai.com/%7Ea", "/openai/%7Ea"},
		{"https://api.openai.com//a/../b", "/openai//a/../b"}, // for the handler to refuse
		{"https://api.openai.com/a?", "/openai/a?"},
		{"https://mine.openai.azure.com/openai/v1/responses", "/azv1/responses"},
		{"https://mine.openai.azure.com/openai/v1", "/azv1"},
		{"https://mine.openai.azure.com/openai/v11", "/az/v11"},
		{"https://mine.openai.azure.com/openai/deployments/x/chat/completions", "/az/deployments/x/chat/completions"},
		{"http://127.0.0.1:8000/v1/models", "/local/models"},
		{"https://mine.openai.azure.com/openaix", ""},
		{"https://mine.openai.azure.com/", ""},
		{"http://127.0.0.1:8000/metrics", ""},
		{"http://127.0.0.1:8000/%761/models", ""}, // another spelling of the base
	} {
		r, err := http.NewRequest("POST", c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		to, bad := parseEndpoint(r.URL.Host, map[string]string{"http": "80", "https": "443"}[r.URL.Scheme])
		if bad != "" || m.kind(to) != kindGated {
			t.Fatalf("%s: %s", c.url, bad)
		}
		in, reason := m.rewrite(r, to)
		got := ""
		if reason == "" {
			got = in.URL.String()
			if in.URL.Host != "" || in.URL.Scheme != "" || in.RequestURI != got {
				t.Errorf("%s: %+v", c.url, in.URL)
			}
		}
		if got != c.want {
			t.Errorf("%s became %q (%s), want %q", c.url, got, reason, c.want)
		}
	}
}

func TestUpstreamsWhoseHostCannotBeRecognisedAreRefused(t *testing.T) {
	for _, u := range []string{"https://2130706433", "https://0x7f.1/", "https://a..b/", "https://exa mple/"} {
		at := parseURL(t, "https://x")
		at.Host = strings.TrimSuffix(strings.TrimPrefix(u, "https://"), "/")
		if _, err := newHostMap([]Upstream{{"x", at}}, nil, nil); err == nil {
			t.Errorf("%s was taken", u)
		}
	}
}

// Whatever is taken for a host has one spelling, and reading that gives the same
// host. The inputs are made of pieces of what is and is not one.
func TestEveryHostThatIsTakenHasOneSpelling(t *testing.T) {
	pieces := []string{
		"api.openai.com", "a", "A.", ".", "..", ":", "[", "]", "::1", "::ffff:", "127.0.0.1", "0x7f", "017", "1", "443", "0", "99999", "+", "-", "_", "%", "%25", "@", "/", "\\",
		" ", "\t", "\x00", "\u212a", "\u3002", "xn--", "localhost", "fe80::1", "*", "?", "#",
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	taken := 0
	for range 300_000 {
		var b strings.Builder
		for range 1 + rnd.IntN(5) {
			b.WriteString(pieces[rnd.IntN(len(pieces))])
		}
		s := b.String()
		e, reason := parseEndpoint(s, "443")
		if reason != "" {
			continue
		}
		taken++
		again, reason := parseEndpoint(e.String(), "")
		if reason != "" || again != e {
			t.Errorf("%q is %s, which is %s (%s)", s, e, again, reason)
		}
		a := e.addr()
		if strings.ToLower(e.host) != e.host || e.port == 0 || strings.Trim(e.host, ".[]") != e.host || a.Is4In6() || a.Zone() != "" {
			t.Errorf("%q is %+v", s, e)
		}
		// What a resolver of C takes for an address must be one here too.
		if last := e.host[strings.LastIndexByte(e.host, '.')+1:]; !a.IsValid() && (strings.HasPrefix(last, "0x") || strings.Trim(last, "0123456789") == "") {
			t.Errorf("%q is a name: %s", s, e.host)
		}
	}
	if taken < 1000 {
		t.Errorf("only %d were hosts", taken)
	}
}
