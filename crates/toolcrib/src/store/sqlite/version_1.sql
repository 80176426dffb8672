-- A store as version 1 of the tables had it: a dump of one that the command wrote. `calculate` was disabled, the token `ci`
-- created and revoked, the source `gone` declared, disabled, enabled and removed.
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE call_counts (
        source TEXT NOT NULL, tool TEXT NOT NULL, calls INTEGER NOT NULL, errors INTEGER NOT NULL,
        last_called INTEGER, last_error TEXT, PRIMARY KEY (source, tool)
    ) STRICT;
INSERT INTO "call_counts" VALUES('core','current_time',1,0,1794875911964,NULL);
CREATE TABLE checks (id INTEGER PRIMARY KEY, source TEXT NOT NULL, at INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
INSERT INTO "checks" VALUES(1,'core',1794875911844,'{"source":"core","at":"2026-11-17T00:38:31.844Z","duration_ms":0,"tool_count":2,"error":null}');
INSERT INTO "checks" VALUES(2,'gone',1794875911890,'{"source":"gone","at":"2026-11-17T00:38:31.890Z","duration_ms":24,"tool_count":null,"error":{"code":"TOOL_UNAVAILABLE","message":"no connection: `http://127.0.0.1:9/mcp`: Connection refused (os error 111)"}}');
CREATE TABLE definitions (name TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT;
INSERT INTO "definitions" VALUES('a04eb07c436eac7cafad2c98e0d5d31b26926abe5c1a3e86b9e0a4d8f8595701','{"id":"core","kind":{"builtin":{"tools":["current_time","calculate"],"roots":[],"allow_private":false}},"settings":{}}');
CREATE TABLE journal (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, actor TEXT NOT NULL, body TEXT NOT NULL) STRICT;
INSERT INTO "journal" VALUES(1,1794875911841,'config','{"type":"SourceDeclared","source":"core","kind":"builtin","origin":"config","definition":"a04eb07c436eac7cafad2c98e0d5d31b26926abe5c1a3e86b9e0a4d8f8595701","enabled":null}');
INSERT INTO "journal" VALUES(2,1794875911845,'refresh','{"type":"InventoryRecorded","source":"core","fingerprint":"b0dc92715f7393ccddf3d392a9fba9f89d6ba622d98caf95668e0481538e79ad","added":["calculate","current_time"],"changed":[],"removed":[]}');
INSERT INTO "journal" VALUES(3,1794875911848,'cli','{"type":"ToolDisabled","source":"core","tool":"calculate"}');
INSERT INTO "journal" VALUES(4,1794875911861,'cli','{"type":"TokenCreated","token":"4aa62c8d4458","name":"ci","role":"agent","hash":"e9de393d7ee9d31daef21345aec9b8b602879b096c466453d7df918e31ebf9e0","expires_at":null}');
INSERT INTO "journal" VALUES(5,1794875911873,'cli','{"type":"TokenRevoked","token":"4aa62c8d4458","name":"ci"}');
INSERT INTO "journal" VALUES(6,1794875911887,'cli','{"type":"SourceDeclared","source":"gone","kind":"mcp","origin":"runtime","definition":"832f3f6fdfbeec76469164a9651145b84ada18e94c8fcc38134e44004119f514","enabled":null}');
INSERT INTO "journal" VALUES(7,1794875911927,'cli','{"type":"SourceDisabled","source":"gone"}');
INSERT INTO "journal" VALUES(8,1794875911938,'cli','{"type":"SourceEnabled","source":"gone"}');
INSERT INTO "journal" VALUES(9,1794875911948,'cli','{"type":"SourceRemoved","source":"gone"}');
CREATE TABLE leases (source TEXT PRIMARY KEY, holder TEXT NOT NULL, until INTEGER NOT NULL) STRICT;
CREATE TABLE manifests (fingerprint TEXT PRIMARY KEY, idx TEXT NOT NULL, body TEXT NOT NULL) STRICT;
INSERT INTO "manifests" VALUES('b0dc92715f7393ccddf3d392a9fba9f89d6ba622d98caf95668e0481538e79ad','{"source":"core","tools":[{"name":"calculate","fingerprint":"215592436d30db5a7bd1fe0ee39e93b740345efe8ac88c5a9c20400f19fca5ab","start":0,"face_start":223,"end":985},{"name":"current_time","fingerprint":"dd0ebab01314625b2c3302428b303b45396a919099bc3c73326b831bf189d5c2","start":985,"face_start":1318,"end":1790}],"set_aside":[]}','{"name":"calculate","output_schema":{"type":"object","properties":{"result":{"type":["number","string"],"description":"a string when too large for a JSON number"}},"required":["result"],"additionalProperties":false},"face":{"title":"Calculate","description":"Evaluates an arithmetic expression. Use it instead of computing in your head. Operators + - * / % ^ and parentheses (2^3^2 is 2^9, -2^2 is -4, % is the remainder with the sign of its left side); functions sqrt, abs, min, max, round(x, digits), floor, ceil, sin, cos, tan (radians), ln, log(x, base; default 10), log2, log10, exp, pow; constants pi, e. Integers are exact up to 38 digits, other results have 15 significant digits.","input_schema":{"type":"object","properties":{"expression":{"type":"string","minLength":1,"maxLength":1000,"description":"such as `(1 + 2) * sqrt(16) / 3`"}},"required":["expression"],"additionalProperties":false},"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}}{"name":"current_time","output_schema":{"type":"object","properties":{"time":{"type":"string","description":"RFC 3339"},"unix":{"type":"integer"},"weekday":{"type":"string"},"utc_offset":{"type":"string"},"timezone":{"type":"string"}},"required":["time","unix","weekday","utc_offset","timezone"],"additionalProperties":false},"face":{"title":"Current time","description":"The current date and time. Use it whenever an answer depends on today''s date, the time of day, the weekday or a time zone''s offset. Gives RFC 3339, Unix seconds, weekday and UTC offset.","input_schema":{"type":"object","properties":{"timezone":{"type":"string","maxLength":64,"description":"IANA name, such as `Europe/Berlin`; default `UTC`"}},"additionalProperties":false},"annotations":{"readOnlyHint":true,"openWorldHint":false}}}');
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
INSERT INTO "meta" VALUES('key',X'2B190813B925FFE6B2AF1D1B940E18A14A93CAD359CE884954C1ED636BAAA8E2');
CREATE TABLE need_counts (source TEXT PRIMARY KEY, hits INTEGER NOT NULL, misses INTEGER NOT NULL) STRICT;
INSERT INTO "need_counts" VALUES('core',1,0);
CREATE TABLE standings (source TEXT PRIMARY KEY, started_at INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
INSERT INTO "standings" VALUES('core',1794875911844,'{"started_at":"2026-11-17T00:38:31.844Z","checked_at":"2026-11-17T00:38:31.844Z","connects_to":"c480291941f32cb6647ed7a2b992cfaf84621ae2e4ca70e1ff00220601fbb5ff","failures":0,"last_error":null,"tried":"c480291941f32cb6647ed7a2b992cfaf84621ae2e4ca70e1ff00220601fbb5ff","not_before":null,"invalidated":false,"era":null,"offers":[],"hint_ttl_ms":null,"private":false,"marks":null}');
CREATE INDEX checks_of_source ON checks (source);
COMMIT;
