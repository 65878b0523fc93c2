// Opens @FILE@ with the VGF library and prints its modules, segments, inputs and outputs.
//   c++ -std=c++17 @STEM@.cpp -I<vgf_lib>/binaries/include -L<vgf_lib>/binaries/lib -lvgf -o @STEM@
#include <vgf/decoder.hpp>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

using namespace mlsdk::vgflib;

int main(int argc, char **argv) {
    std::ifstream file(argc > 1 ? argv[1] : "@FILE@", std::ios::binary);
    std::vector<char> data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (data.size() < HeaderSize()) {
        std::fprintf(stderr, "the file cannot be read, or is too short\n");
        return 1;
    }
    std::unique_ptr<HeaderDecoder> header = CreateHeaderDecoder(data.data(), HeaderSize(), data.size());
    if (!header || !header->IsValid() || !header->CheckVersion()) {
        std::fprintf(stderr, "this is no VGF file of a version that the library reads\n");
        return 1;
    }
    auto modules = CreateModuleTableDecoder(data.data() + header->GetModuleTableOffset(),
                                            header->GetModuleTableSize());
    auto sequence = CreateModelSequenceTableDecoder(data.data() + header->GetModelSequenceTableOffset(),
                                                    header->GetModelSequenceTableSize());
    auto resources = CreateModelResourceTableDecoder(
        data.data() + header->GetModelResourceTableOffset(), header->GetModelResourceTableSize());
    if (!modules || !sequence || !resources) {
        std::fprintf(stderr, "the file is damaged\n");
        return 1;
    }
    std::printf("%zu modules, %zu segments\n", modules->size(), sequence->modelSequenceTableSize());
    const auto show = [&](const char *kind, BindingSlotArrayHandle slots, NameArrayHandle names) {
        for (uint32_t i = 0; i < sequence->getBindingsSize(slots); ++i) {
            const uint32_t resource = sequence->getBindingSlotMrtIndex(slots, i);
            std::printf("%s %u at binding %u: %s, shape", kind, i,
                        sequence->getBindingSlotBinding(slots, i),
                        std::string(sequence->getName(names, i)).c_str());
            for (const int64_t size : resources->getTensorShape(resource)) {
                std::printf(" %lld", static_cast<long long>(size));
            }
            std::printf("\n");
        }
    };
    show("input", sequence->getModelSequenceInputBindingSlotsHandle(),
         sequence->getModelSequenceInputNamesHandle());
    show("output", sequence->getModelSequenceOutputBindingSlotsHandle(),
         sequence->getModelSequenceOutputNamesHandle());
    return 0;
}
