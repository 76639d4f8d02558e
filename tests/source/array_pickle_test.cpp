#include "lockstep/source/array_pickle.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "tests/data/error_text.h"
#include "tests/source/cifar_files.h"
#include "tests/support/damage.h"

namespace lockstep::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string pickle_error(const std::string& pickle) {
  return error_text<DataError>([&] { read_array_pickle(pickle); });
}

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

// pickle.dumps({'data': numpy.array([[1, 200]], 'uint8'), 'labels': [7, 300]}, protocol) in Python
// 3.11 with NumPy 1.24.
const std::string kProtocol2 = from_hex(
    "80027d7100285804000000646174617101636e756d70792e636f72652e6d756c746961727261790a5f7265636f6e"
    "7374727563740a7102636e756d70790a6e6461727261790a71034b00857104635f636f646563730a656e636f6465"
    "0a7105580100000062710658060000006c6174696e31710786710852710987710a52710b284b014b014b0286710c"
    "636e756d70790a64747970650a710d58020000007531710e898887710f527110284b0358010000007c71114e4e4e"
    "4affffffff4affffffff4b0074711262896805580300000001c3887113680786711452711574711662580600"
    "00006c6162656c7371175d7118284b074d2c0165752e");
const std::string kProtocol4 = from_hex(
    "800495a9000000000000007d94288c0464617461948c156e756d70792e636f72652e6d756c74696172726179948c"
    "0c5f7265636f6e7374727563749493948c056e756d7079948c076e6461727261799493944b008594430162948794"
    "5294284b014b014b02869468058c0564747970659493948c02753194898887945294284b038c017c944e4e4e4aff"
    "ffffff4affffffff4b0074946289430201c8947494628c066c6162656c73945d94284b074d2c0165752e");
const std::string kProtocol5 = from_hex(
    "80059594000000000000007d94288c0464617461948c126e756d70792e636f72652e6e756d65726963948c0b5f66"
    "726f6d6275666665729493942896020000000000000001c8948c056e756d7079948c0564747970659493948c0275"
    "3194898887945294284b038c017c944e4e4e4affffffff4affffffff4b007494624b014b0286948c014394749452"
    "948c066c6162656c73945d94284b074d2c0165752e");

TEST(ArrayPickle, ReadsWhatPython3Writes) {
  for (const std::string& pickle : {kProtocol2, kProtocol4, kProtocol5}) {
    const ArrayPickle read = read_array_pickle(pickle);
    ASSERT_TRUE(read.arrays.contains("data"));
    EXPECT_THAT(read.arrays.at("data").shape, ElementsAre(1, 2));
    EXPECT_EQ(read.arrays.at("data").bytes, "\x01\xc8");
    EXPECT_THAT(read.lists.at("labels"), ElementsAre(7, 300));
  }
}

TEST(ArrayPickle, ReadsTheFormOfCifar) {
  const std::string pixels = std::string(3072, '\1') + std::string(3072, '\xfe');
  const ArrayPickle read = read_array_pickle(cifar_pickle("labels", {3, 9}, pixels));
  EXPECT_THAT(read.arrays.at("data").shape, ElementsAre(2, 3072));
  EXPECT_EQ(read.arrays.at("data").bytes, pixels);
  EXPECT_THAT(read.lists.at("labels"), ElementsAre(3, 9));
  EXPECT_FALSE(read.lists.contains("filenames"));
}

TEST(ArrayPickle, RunsNoFunctions) {
  EXPECT_THAT(pickle_error("\x80\x02"
                           "cos\nsystem\nU\x02ls\x85R."),
              HasSubstr("byte 2: 'os.system' is not allowed"));
  const std::string long_name(100'000, 'x');
  EXPECT_LT(pickle_error("cos\n" + long_name + "\n.").size(), 200U);
  EXPECT_THAT(pickle_error("c\x1b[2J\nsystem\n."), HasSubstr("'\\x1b[2J.system'"));
}

TEST(ArrayPickle, RefusesOtherTypesAndOrders) {
  std::string other = kProtocol4;
  other.replace(other.find("u1"), 2, "f4");
  EXPECT_THAT(pickle_error(other), HasSubstr("an array of type 'f4', expected 'u1'"));
  std::string fortran = kProtocol5;
  fortran.replace(fortran.find("\x8c\x01"
                               "C"),
                  3,
                  "\x8c\x01"
                  "F");
  EXPECT_THAT(pickle_error(fortran), HasSubstr("Fortran"));
}

TEST(ArrayPickle, ComparesTheShapeWithTheBytes) {
  std::string wrong = kProtocol5;
  wrong.replace(wrong.find("K\x01K\x02"), 4, "K\x03K\x02");
  EXPECT_THAT(pickle_error(wrong), HasSubstr("an array of 6 bytes has 2"));
}

TEST(ArrayPickle, NamesTheByteWhereItEnds) {
  EXPECT_THAT(pickle_error(""),
              HasSubstr("byte 0: 1 more bytes expected, but the file has only 0"));
  EXPECT_THAT(pickle_error(std::string("\x80\x02}T\xff\xff\xff\x7f", 8)),
              AllOf(HasSubstr("byte 3: 2147483647 more bytes expected"), HasSubstr("only 0")));
}

TEST(ArrayPickle, RefusesWhatIsNotADictionary) {
  EXPECT_THAT(pickle_error("]."), HasSubstr("expected a dictionary"));
  EXPECT_THAT(pickle_error("."), HasSubstr("a value is missing"));
  EXPECT_THAT(pickle_error("t."), HasSubstr("the start of the values is missing"));
}

// A list that contains itself, and one list under many keys.
TEST(ArrayPickle, SharedValuesTakeNoMemory) {
  EXPECT_TRUE(read_array_pickle("}(U\x01"
                                "a]q\1h\1au.")
                  .lists.empty());
  std::string many = "}(U\1z](";
  for (int i = 0; i < 100; ++i) many += "K\1";
  many += "eq\1";
  for (char key = 'a'; key < 'a' + 20; ++key) many += std::string("U\1") + key + "h\1";
  EXPECT_THAT(pickle_error(many + "u."), HasSubstr("more bytes than the file"));
}

TEST(ArrayPickle, SurvivesDamage) {
  for (const std::string& pickle : {kProtocol2, kProtocol4, kProtocol5,
                                    cifar_pickle("labels", {1, 2}, std::string(6144, 'x'))}) {
    const auto read = [](const std::string& bytes) { read_array_pickle(bytes); };
    EXPECT_GT(refused_if_damaged<DataError>(pickle, read), 10);
  }
}

}  // namespace
}  // namespace lockstep::data
